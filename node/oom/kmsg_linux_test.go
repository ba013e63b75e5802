package oom

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/node/internal/cgroupfs"
)

// records returns a log on a socket, which keeps records apart, as /dev/kmsg does, and the end to write to.
func records(t *testing.T) (*kmsg, *os.File) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	in := os.NewFile(uintptr(fds[1]), "in")
	log, err := newKmsg(os.NewFile(uintptr(fds[0]), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = log.Close(), in.Close() })
	return log, in
}

func TestKmsg(t *testing.T) {
	log, in := records(t)
	buf := make([]byte, 64)
	_, err := log.Next(buf)
	require.ErrorIs(t, err, ErrNoRecord)

	waits := make(chan error, 1)
	go func() { waits <- log.Wait(t.Context()) }()
	_, err = log.Next(buf) // it does not wait for the other one
	require.ErrorIs(t, err, ErrNoRecord)
	_, err = in.WriteString("one")
	require.NoError(t, err)
	require.NoError(t, <-waits)
	_, err = in.WriteString("two")
	require.NoError(t, err)
	require.NoError(t, log.Wait(t.Context()), "there is a record already")
	for _, want := range []string{"one", "two"} {
		n, err := log.Next(buf)
		require.NoError(t, err)
		assert.Equal(t, want, string(buf[:n]))
	}

	ctx, cancel := context.WithCancel(t.Context())
	go func() { waits <- log.Wait(ctx) }()
	cancel()
	require.ErrorIs(t, <-waits, context.Canceled)

	require.NoError(t, in.Close())
	_, err = log.Next(buf)
	assert.True(t, err != nil && !errors.Is(err, ErrNoRecord), "the log has ended")
}

// The file may be closed while it is waited for.
func TestKmsgIsClosed(t *testing.T) {
	log, _ := records(t)
	var wg sync.WaitGroup
	wg.Go(func() { assert.Error(t, log.Wait(t.Context())) })
	require.NoError(t, log.Close())
	wg.Wait()
	_, err := log.Next(nil)
	assert.Error(t, err)
}

// The log of this machine can be opened, or there is an error that says why not.
func TestOpenKmsg(t *testing.T) {
	log, err := OpenKmsg()
	if err != nil {
		assert.ErrorContains(t, err, "/dev/kmsg")
		t.Skip(err)
	}
	require.NoError(t, log.Close())
}

// Of a process whose cgroup the log does not name, /proc has it.
func TestCgroupOfAProcess(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	require.NoError(t, err)
	name := printable(string(comm[:len(comm)-1]))
	if ns, _ := os.Readlink("/proc/self/ns/pid"); ns != initialPIDs {
		assert.Empty(t, cgroupOf(os.Getpid(), name), "PIDs are not those of the log")
		return
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	assert.Equal(t, cgroupfs.PathOf(string(own), "memory"), cgroupOf(os.Getpid(), name))
	assert.Empty(t, cgroupOf(os.Getpid(), "another"), "the PID is that of another process now")
	assert.Empty(t, cgroupOf(1<<22+1, name))
}
