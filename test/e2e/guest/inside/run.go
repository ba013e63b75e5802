//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/test/e2e/guest/job"
)

const (
	cgroups = "/sys/fs/cgroup"
	swap    = "/dev/zram0"
)

// run runs the job and switches the guest off.
func run() error {
	j, err := readJob()
	if err != nil {
		return err
	}
	if err := command("modprobe", "-a", "virtio_console", "virtio_blk", "zram"); err != nil {
		return err
	}
	ports, _ := filepath.Glob("/dev/vport*")
	if len(ports) != 1 {
		return fmt.Errorf("%d ports instead of 1", len(ports))
	}
	port, err := os.OpenFile(ports[0], os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer port.Close()
	if err := prepare(j); err != nil {
		return err
	}
	messages := json.NewEncoder(port)
	for i, command := range j.Commands {
		exit := execute(i, command, j.Silence, messages)
		if err := messages.Encode(job.Message{Command: i, Exit: &exit}); err != nil {
			return err
		}
	}
	return errors.New("done")
}

// prepare makes of the guest what a machine is.
func prepare(j job.Job) error {
	temp := filepath.Join(filepath.Dir(job.File), "tmp")
	steps := []func() error{
		directory(temp), func() error { return os.Chmod(temp, os.ModeSticky|0o777) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") },
		loopback,
	}
	if !j.Systemd {
		steps = append(steps,
			mount("cgroup", cgroups, "cgroup2", 0, "nsdelegate"), controllers,
			mount("pts", "/dev/pts", "devpts", 0, ""), mount("shm", "/dev/shm", "tmpfs", 0, ""),
			mount("mqueue", "/dev/mqueue", "mqueue", 0, ""), mount("security", "/sys/kernel/security", "securityfs", 0,
				""))
	}
	if j.SwapMiB > 0 {
		steps = append(steps, func() error { return swapDevice(j.SwapMiB) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// controllers enables all controllers for the cgroups of the first level.
func controllers() error {
	data, err := os.ReadFile(cgroups + "/cgroup.controllers")
	if err != nil {
		return err
	}
	all := strings.Fields(string(data))
	return os.WriteFile(cgroups+"/cgroup.subtree_control", []byte("+"+strings.Join(all, " +")), 0)
}

func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// swapDevice makes a device in memory that is ready for swapon.
func swapDevice(mib int) error {
	if err := os.WriteFile("/sys/block/zram0/disksize", fmt.Appendf(nil, "%dM", mib), 0); err != nil {
		return err
	}
	return command("mkswap", swap)
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// output sends what is written to it, and puts the alarm off.
type output struct {
	command  int
	messages *json.Encoder
	alarm    *time.Timer
	silence  time.Duration
}

func (o output) Write(data []byte) (int, error) {
	o.alarm.Reset(o.silence)
	return len(data), o.messages.Encode(job.Message{Command: o.command, Output: data})
}

// execute runs the command. One without output for the time of silence hangs. It gets SIGQUIT, so that a program in Go
// prints the stacks of its goroutines, the console shows where the kernel holds tasks, and then it is killed.
func execute(i int, c job.Command, silence time.Duration, messages *json.Encoder) job.Exit {
	begin := time.Now()
	ctx, hangs := context.WithCancelCause(context.Background())
	defer hangs(nil)
	alarm := time.AfterFunc(silence, func() { hangs(fmt.Errorf("no output for %v", silence)) })
	defer alarm.Stop()
	out := output{i, messages, alarm, silence}
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, out, out
	cmd.Cancel = func() error {
		_ = os.WriteFile("/proc/sys/kernel/printk", []byte("8"), 0)
		_ = os.WriteFile("/proc/sysrq-trigger", []byte("w"), 0)
		return cmd.Process.Signal(syscall.SIGQUIT)
	}
	cmd.WaitDelay = 5 * time.Second // after Cancel, and for what it leaves behind, which may have its output open
	err := cmd.Run()
	exit := job.Exit{Took: time.Since(begin)}
	if cmd.ProcessState == nil {
		exit.Code, exit.Error = 127, err.Error()
		return exit
	}
	if cause := context.Cause(ctx); cause != nil {
		exit.Error = cause.Error()
	}
	exit.Code = cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		exit.Code = 128 + int(status.Signal())
	}
	return exit
}
