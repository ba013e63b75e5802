package eviction

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/internal/cgroupfs"
)

// On a machine without any of the kernel's signals, the error names those that are missing.
func TestWatchWithoutSignals(t *testing.T) {
	m, err := NewMachine(MachineOptions{proc: tree(t, proc),
		cgroup: tree(t, map[string]string{"cgroup.controllers": "memory"})})
	require.NoError(t, err)
	err = m.Watch(t.Context(), []Threshold{{Signal: MemoryAvailable}}, func() {})
	assert.ErrorContains(t, err, "pressure stall information")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, m.Watch(ctx, []Threshold{{Signal: NodeFsAvailable}}, func() {}), "disks have none")
}

// TestLevels asserts that on version 1 of cgroups all file descriptors are there from the beginning, and that the level
// of the pods is set when their cgroup is made, moves with their usage, and is set again in a cgroup made anew.
func TestLevels(t *testing.T) {
	const mib = 1 << 20
	cgroup := tree(t, map[string]string{
		"memory/memory.usage_in_bytes": strconv.Itoa(100 * mib), "memory/cgroup.event_control": "",
	})
	m, err := NewMachine(MachineOptions{PodsCgroup: func() string { return "/kubepods" }, proc: tree(t, proc),
		cgroup: cgroup})
	require.NoError(t, err)
	value, err := parseValue("100Mi")
	require.NoError(t, err)
	w := &watch{Machine: m, levels: map[string]level{}, thresholds: []Threshold{
		{Signal: AllocatableMemoryAvailable, Value: value}, {Signal: MemoryAvailable, Value: value}, {Signal: MemoryAvailable, Value: value, GracePeriod: time.Minute},
	}}
	w.signals, err = cgroupfs.NewSignals()
	require.NoError(t, err)
	defer func() { _ = w.signals.Close() }()
	eventfds := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		for _, e := range entries {
			if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); to == "anon_inode:[eventfd]" {
				n++
			}
		}
		return n
	}
	pods := filepath.Join(cgroup, "memory/kubepods")
	write := func(usage int) {
		require.NoError(t, os.MkdirAll(pods, 0o755))
		for name, n := range map[string]int{"memory.usage_in_bytes": usage, "memory.limit_in_bytes": 1000 * mib} {
			require.NoError(t, os.WriteFile(filepath.Join(pods, name), []byte(strconv.Itoa(n)), 0o644))
		}
		require.NoError(t, os.WriteFile(filepath.Join(pods, "memory.stat"), []byte("total_inactive_file 0\n"), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(pods, "cgroup.event_control"), nil, 0o644))
	}
	set := func() string { // the level that the kernel was given since the last write
		text, err := os.ReadFile(filepath.Join(pods, "cgroup.event_control"))
		require.NoError(t, err)
		fields := strings.Fields(string(text))
		if len(fields) < 3 {
			return ""
		}
		return fields[2]
	}
	w.arm()
	all := eventfds()
	write(500 * mib)
	w.arm()
	assert.Equal(t, strconv.Itoa(900*mib+1), set())
	write(500 * mib)
	w.arm()
	assert.Empty(t, set(), "it is where it was")
	require.NoError(t, os.WriteFile(filepath.Join(pods, "memory.limit_in_bytes"), []byte(strconv.Itoa(2000*mib)),
		0o644))
	w.arm()
	assert.Equal(t, strconv.Itoa(1900*mib+1), set(), "the limit has grown")
	require.NoError(t, os.Rename(pods, pods+"-old"))
	w.arm()
	write(500 * mib)
	w.arm()
	assert.Equal(t, strconv.Itoa(900*mib+1), set(), "another cgroup")
	require.NoError(t, os.Rename(pods, pods+"-older"))
	write(500 * mib)
	w.arm()
	assert.Equal(t, strconv.Itoa(900*mib+1), set(), "another one at once")
	assert.Equal(t, all, eventfds())
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
