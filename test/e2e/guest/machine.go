package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/test/e2e/guest/job"
)

// errEnded means that a guest has ended without the end of its job, as by a panic of its kernel.
var errEnded = errors.New("the guest has ended before its job")

// machine is what a guest is booted with.
type machine struct {
	// linux is the directory of the kernel and its modules, inside the program of that name.
	linux, inside string
	// dir is a directory for files of the guest.
	dir string
	// The memory is in MiB. Each of the memory nodes (NUMA nodes) has as many processors and as much memory.
	// A core has as many processors as threads.
	cpus, mem, nodes, threads int
	// kvm takes the processors of this machine. By default they are emulated: /dev/kvm may be there and
	// not work, as in a virtual machine.
	kvm bool
	// diskMiB is the size of /dev/vda, which is empty.
	diskMiB int
	// image is a file that is /dev/vda instead, and is kept. It is made with the size if it does not exist.
	image string
	// kernel has further arguments of the kernel.
	kernel  string
	timeout time.Duration
}

// run boots a guest for the job, calls receive for each of its messages, and returns when all commands
// have ended and the guest is off. With the context, and at the timeout, the guest is killed.
func (m machine) run(ctx context.Context, j job.Job, receive func(job.Message)) error {
	dir, err := os.MkdirTemp(m.dir, "")
	if err != nil {
		return err
	}
	if err := m.files(dir, j); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.timeout, fmt.Errorf("the guest has not done its job within %v",
		m.timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", m.args(dir)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	left := len(j.Commands)
	messages := json.NewDecoder(out)
	for err == nil {
		var message job.Message
		if err = messages.Decode(&message); err == nil {
			receive(message)
			if message.Exit != nil {
				left--
			}
		}
	}
	ended := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case left == 0:
		return nil
	case ended != nil:
		err = fmt.Errorf("%w: %w", errEnded, ended)
	case errors.Is(err, io.EOF):
		err = errEnded
	}
	console, _ := os.ReadFile(filepath.Join(dir, "console"))
	return fmt.Errorf("%w\n%s%s", err, stderr.Bytes(), console[max(0, len(console)-4000):])
}

// files writes what the arguments name.
func (m machine) files(dir string, j job.Job) error {
	data, err := json.Marshal(j)
	if err != nil {
		return err
	}
	var image bytes.Buffer
	if err := initrd(&image, m.linux, m.inside, data); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "initrd"), image.Bytes(), 0o600); err != nil {
		return err
	}
	disk, err := os.OpenFile(m.disk(dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer disk.Close()
	if info, err := disk.Stat(); err != nil || info.Size() > 0 {
		return err
	}
	return disk.Truncate(int64(m.diskMiB) << 20)
}

// disk is the path of the file that is /dev/vda.
func (m machine) disk(dir string) string { return cmp.Or(m.image, filepath.Join(dir, "disk")) }

func (m machine) accel() string {
	if m.kvm {
		return "kvm"
	}
	return "tcg,thread=multi"
}

// args are the arguments of QEMU. The messages of the guest are its output.
func (m machine) args(dir string) []string {
	const share = "local,security_model=none,readonly=on,multidevs=remap,"
	args := []string{
		"-accel", m.accel(), "-cpu", "max,vendor=GenuineIntel",
		"-smp", fmt.Sprintf("%d,sockets=%d,threads=%d", m.cpus, m.nodes, m.threads),
		"-m", strconv.Itoa(m.mem / m.nodes * m.nodes),
		"-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot",
		"-kernel", filepath.Join(m.linux, "vmlinuz"), "-initrd", filepath.Join(dir, "initrd"),
		// On a busy machine, the timer may seem not to work to the kernel, which panics then.
		"-append", "console=ttyS0 init_on_alloc=0 panic=-1 quiet loglevel=2 psi=1 apparmor=1 security=apparmor " +
			"no_timer_check " + m.kernel,
		"-serial", "file:" + filepath.Join(dir, "console"),
		"-device", "virtio-serial-pci", "-chardev", "file,id=messages,path=/dev/stdout", "-device",
		"virtserialport,chardev=messages",
		"-virtfs", share + "mount_tag=machine,path=/",
		"-virtfs", share + "mount_tag=modules,path=" + filepath.Join(m.linux, "lib/modules"),
		"-drive", "if=virtio,format=raw,cache=unsafe,file=" + m.disk(dir),
	}
	for n := 0; n < m.nodes && m.nodes > 1; n++ {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=node%d,size=%dM", n, m.mem/m.nodes),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=node%d,cpus=%d-%d", n, n, n*m.cpus/m.nodes,
				(n+1)*m.cpus/m.nodes-1))
	}
	return args
}
