package eviction

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A machine without any of the kernel's signals: the error says which are missing.
func TestWatchWithoutSignals(t *testing.T) {
	m, err := NewMachine(MachineOptions{PodsCgroup: func() string { return "/kubepods" }, proc: tree(t, proc), cgroup: tree(t, map[string]string{"cgroup.controllers": "memory"})})
	require.NoError(t, err)
	err = m.Watch(t.Context(), []Threshold{{Signal: MemoryAvailable}}, func() {})
	assert.ErrorContains(t, err, "pressure stall information")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, m.Watch(ctx, []Threshold{{Signal: NodeFsAvailable}}, func() {}), "disks have none")
}

// TestWatchOfUsage asserts that the kernel's notification about the usage of a cgroup of version 1 wakes within 100 ms.
func TestWatchOfUsage(t *testing.T) {
	const mount = "/sys/fs/cgroup"
	if _, err := os.Stat(mount + "/memory/cgroup.event_control"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root, and version 1 of cgroups")
	}
	dir, err := os.MkdirTemp(mount+"/memory", "kubeletkit-eviction-")
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = os.Remove(dir) }()
	write := func(file, text string) { require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0)) }
	write("memory.limit_in_bytes", "67108864")
	m, err := NewMachine(MachineOptions{PodsCgroup: func() string { return "/" + filepath.Base(dir) }, cgroup: mount})
	require.NoError(t, err)
	value, err := parseValue("32Mi")
	require.NoError(t, err)
	threshold := Threshold{Signal: AllocatableMemoryAvailable, Value: value}
	woken := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Watch(ctx, []Threshold{threshold}, func() { woken <- struct{}{} }) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Skip("the kernel has none of the signals: ", err)
		}
	}()
	// Files in memory count as the memory of who has written them.
	file, err := os.CreateTemp("/dev/shm", "kubeletkit-eviction-")
	require.NoError(t, err)
	defer func() { _ = os.Remove(file.Name()) }()
	require.NoError(t, file.Close())
	script := "echo $$ >" + dir + "/cgroup.procs; exec head -c 50331648 /dev/zero >" + file.Name()
	for range 20 { // the first may come before the notification is set
		require.NoError(t, exec.CommandContext(ctx, "sh", "-c", script).Run())
		r, err := m.Read(ctx, []Threshold{threshold})
		require.NoError(t, err)
		require.Less(t, r[AllocatableMemoryAvailable].Available, int64(32<<20))
		select {
		case <-woken:
			return
		case <-time.After(100 * time.Millisecond):
			require.NoError(t, os.Truncate(file.Name(), 0))
		}
	}
	t.Error("not woken within 100 ms")
}
