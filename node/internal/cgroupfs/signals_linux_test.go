package cgroupfs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newSignals(t *testing.T) *Signals {
	t.Helper()
	s, err := NewSignals()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestWaitWithoutSignals(t *testing.T) {
	s := newSignals(t)
	names, err := s.Wait(t.Context(), time.Now().Add(time.Millisecond))
	require.NoError(t, err)
	assert.Empty(t, names)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Wait(ctx, time.Time{})
	assert.ErrorIs(t, err, context.Canceled)
	_, err = s.Wait(t.Context(), time.Now().Add(time.Millisecond))
	assert.NoError(t, err, "it can be called again")
}

func TestNotifications(t *testing.T) {
	s, dir := newSignals(t), t.TempDir()
	require.Error(t, s.Notify("a", dir, "memory.oom_control", ""), "there is no such file")
	for _, name := range []string{"memory.oom_control", "cgroup.event_control"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.ErrorIs(t, s.Notify("a", dir, "memory.oom_control", ""), os.ErrNotExist, "there is no such name")
	require.NoError(t, s.AddNotification("a"))
	require.NoError(t, s.AddNotification("a"), "in place of the first one")
	assert.Equal(t, 1, s.Len())
	require.NoError(t, s.Notify("a", dir, "memory.oom_control", "7"))
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.event_control"))
	require.NoError(t, err)
	assert.Len(t, strings.Fields(string(text)), 3)
	s.Remove("a")
	s.Remove("a")
	assert.False(t, s.Has("a"))
}

// A file that cannot be waited for, and one that is not there, are errors, and leave no signal.
func TestSignalsThatCannotBe(t *testing.T) {
	s := newSignals(t)
	file := filepath.Join(t.TempDir(), "file")
	require.ErrorIs(t, s.AddEvents("a", file), os.ErrNotExist)
	require.ErrorIs(t, s.AddTrigger("a", file, "some 1 1"), os.ErrNotExist)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Error(t, s.AddEvents("a", file), "epoll has no regular files")
	assert.Zero(t, s.Len())
}

// The events of a real cgroup of version 2: its limit of processes is reached.
func TestGuestEventsOfACgroup(t *testing.T) {
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("set KUBELETKIT_GUEST=1 on a machine with cgroup v2")
	}
	mount, legacy, err := Dir(Mount, "pids", "/")
	require.NoError(t, err)
	require.False(t, legacy)
	require.NoError(t, os.WriteFile(filepath.Join(mount, "cgroup.subtree_control"), []byte("+pids"), 0))
	dir, err := os.MkdirTemp(mount, "kubeletkit-signals-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.Remove(dir) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pids.max"), []byte("1"), 0))
	s := newSignals(t)
	events := filepath.Join(dir, "pids.events")
	require.NoError(t, s.AddEvents("limit", events))
	for range 2 {
		_ = exec.CommandContext(t.Context(), "sh", "-c", "echo $$ >"+dir+"/cgroup.procs; sleep 0; sleep 0").Run()
		names, err := s.Wait(t.Context(), time.Now().Add(10*time.Second))
		require.NoError(t, err)
		assert.Equal(t, []string{"limit"}, names)
	}
	counts, err := Counts(events)
	require.NoError(t, err)
	assert.NotZero(t, counts["max"])
}
