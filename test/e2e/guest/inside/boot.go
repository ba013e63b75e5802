//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/test/e2e/guest/job"
)

// root is where boot builds the root.
const root = "/root"

// unit is the service of systemd.
const unit = `[Unit]
Wants=dbus.socket systemd-logind.service
After=dbus.socket systemd-logind.service
[Service]
ExecStart=` + self + ` run
Delegate=yes
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
`

// masked are units of systemd that do not run: the first empties /tmp, and the others are slow.
var masked = []string{
	"systemd-tmpfiles-setup.service", "systemd-tmpfiles-setup-dev.service", "systemd-tmpfiles-clean.timer",
	"systemd-sysusers.service", "systemd-update-utmp.service", "systemd-random-seed.service", "modprobe@.service",
	"systemd-udevd.service", "systemd-udev-trigger.service",
}

// boot runs in the initial RAM disk, which has this program, the job and the modules. The root is the
// machine's below a layer in memory; /run, /dev, /proc, /sys and the job's directory are the guest's.
func boot() error {
	plan := []func() error{
		mount("proc", "/proc", "proc", 0, ""),
		mount("sysfs", "/sys", "sysfs", 0, ""),
		mount("dev", "/dev", "devtmpfs", 0, ""),
		loadModules,
		mount("machine", "/machine", "9p", unix.MS_RDONLY, "trans=virtio,version=9p2000.L,msize=512000,cache=loose"),
		mount("layer", "/layer", "tmpfs", 0, "size=80%"),
		directory("/layer/upper"), directory("/layer/work"),
		mount("root", root, "overlay", 0, "lowerdir=/machine,upperdir=/layer/upper,workdir=/layer/work"),
		mount("modules", root+"/lib/modules", "9p", unix.MS_RDONLY, "trans=virtio,version=9p2000.L,cache=loose"),
		mount("run", root+"/run", "tmpfs", 0, "mode=755"),
		mount("guest", root+filepath.Dir(job.File), "tmpfs", 0, "mode=755"),
		copyFile("/init", root+self, 0o755), copyFile(job.File, root+job.File, 0o644),
		move("/proc"), move("/sys"), move("/dev"),
		func() error { return os.Chdir(root) },
		func() error { return unix.Mount(".", "/", "", unix.MS_MOVE, "") },
		func() error { return unix.Chroot(".") },
		func() error { return os.Chdir("/") },
	}
	for _, step := range plan {
		if err := step(); err != nil {
			return err
		}
	}
	j, err := readJob()
	if err != nil {
		return err
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=dumb"}
	if !j.Systemd {
		return fmt.Errorf("init: %w", unix.Exec(self, []string{self, "init"}, env))
	}
	const systemd, units = "/lib/systemd/systemd", "/run/systemd/system/"
	err = errors.Join(os.MkdirAll(units, 0o755), os.WriteFile(units+"guest.service", []byte(unit), 0o644))
	for _, name := range masked {
		err = errors.Join(err, os.Symlink("/dev/null", units+name))
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", systemd,
		unix.Exec(systemd, []string{systemd, "--unit=guest.service", "--show-status=false", "--log-level=err"}, env))
}

func mount(source, target, kind string, flags uintptr, data string) func() error {
	return func() error {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(source, target, kind, flags, data); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", source, target, err)
		}
		return nil
	}
}

func move(target string) func() error {
	return mount(target, root+target, "", unix.MS_MOVE, "")
}

func directory(path string) func() error {
	return func() error { return os.MkdirAll(path, 0o755) }
}

func copyFile(from, to string, mode fs.FileMode) func() error {
	return func() error {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, mode)
	}
}

// loadModules loads the modules of the initial RAM disk in the order of their names.
func loadModules() error {
	paths, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("loading %s: %w", strings.TrimPrefix(path, "/modules/"), err)
		}
	}
	return nil
}
