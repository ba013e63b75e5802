package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/node/internal/cgroupfs"
)

// OpenKmsg opens /dev/kmsg after its last record. It needs CAP_SYSLOG if the sysctl kernel.dmesg_restrict is set.
func OpenKmsg() (Log, error) {
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("skipping the records of /dev/kmsg: %w", err), f.Close())
	}
	return newKmsg(f)
}

// kmsg is a file of which each read returns one record. It does not block.
type kmsg struct {
	file *os.File
	conn syscall.RawConn
}

func newKmsg(f *os.File) (*kmsg, error) {
	conn, err := f.SyscallConn()
	if err == nil {
		err = f.SetReadDeadline(time.Time{}) // it fails if the file cannot be waited for
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &kmsg{f, conn}, nil
}

// Wait implements [Log].
func (k *kmsg) Wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = k.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := k.conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Next implements [Log]. It does not use File.Read, which waits for a Wait that is under way.
func (k *kmsg) Next(buf []byte) (n int, err error) {
	if cerr := k.conn.Control(func(fd uintptr) {
		for n, err = unix.Read(int(fd), buf); err == unix.EINTR; {
			n, err = unix.Read(int(fd), buf)
		}
	}); cerr != nil {
		return 0, cerr
	}
	switch {
	case err == unix.EAGAIN:
		return 0, ErrNoRecord
	case err == unix.EPIPE, err == unix.EINVAL:
		return 0, ErrLost
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Close implements [Log].
func (k *kmsg) Close() error { return k.file.Close() }

// initialPIDs is the first namespace of processes (PROC_PID_INIT_INO), whose PIDs are those in the log.
const initialPIDs = "pid:[4026531836]"

// cgroupOf returns the cgroup of a process in the hierarchy of the memory controller; "" if it is not known. The
// process may be gone.
func cgroupOf(pid int, name string) string {
	if ns, err := os.Readlink("/proc/self/ns/pid"); err != nil || ns != initialPIDs {
		return ""
	}
	dir := fmt.Sprintf("/proc/%d/", pid)
	comm, err := os.ReadFile(dir + "comm")
	if err != nil || printable(strings.TrimSuffix(string(comm), "\n")) != name {
		return ""
	}
	data, err := os.ReadFile(dir + "cgroup")
	if err != nil {
		return ""
	}
	return cgroupfs.PathOf(string(data), "memory")
}
