//go:build linux

package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

func (n *node) update(id string, r *criv1.LinuxContainerResources) error {
	_, err := n.rs.UpdateContainerResources(context.Background(),
		&criv1.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
	return err
}

// TestUpdateResources has a container whose cgroup is a directory with the files of
// version 2, known from its record.
func TestUpdateResources(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{NoCgroups: true})
	p := n.pod()
	config := shell("c", "true")
	config.Linux.Resources = &criv1.LinuxContainerResources{CpuQuota: 10_000, CpuPeriod: 100_000}
	id, err := p.create(config)
	require.NoError(t, err)
	n.stop()
	var rec containerRecord
	require.NoError(t, readRecord(n.opts.Dir, id, &rec))
	cgroup := fakeCgroup(t, "cpu.max", "memory.max")
	rec.Cgroup = supervise.Cgroup{V2: cgroup}
	record := filepath.Join(n.opts.Dir, "containers", id, recordFile)
	require.NoError(t, supervise.WriteFile(record, &rec))
	n.start()

	require.NoError(t, n.update(id, &criv1.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}))
	assert.Equal(t, map[string]string{"memory.max": "67108864", "cpu.max": "10000 100000"}, contents(t, cgroup))
	require.NoError(t, n.update(id, &criv1.LinuxContainerResources{CpuQuota: 30_000}))
	assert.Equal(t, map[string]string{"memory.max": "67108864", "cpu.max": "30000 100000"}, contents(t, cgroup))
	require.NoError(t, n.update(id, nil))

	err = n.update(id, &criv1.LinuxContainerResources{CpuQuota: -1, Unified: map[string]string{"pids.max": "20",
		"memory.high": "1"}})
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
	assert.ErrorContains(t, err, "the limit of processes cannot be changed: no cgroup for it can be written")
	assert.ErrorContains(t, err, "the setting memory.high cannot be changed")
	assert.NotContains(t, err.Error(), "CPU")
	require.NoError(t, n.update(id, &criv1.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}))
	assert.Equal(t, "30000 100000", contents(t, cgroup)["cpu.max"], "nothing of it stays")

	want := &criv1.LinuxContainerResources{CpuQuota: 30_000, CpuPeriod: 100_000, MemoryLimitInBytes: 64 << 20}
	resources := func() *criv1.LinuxContainerResources { return n.status(id).GetResources().GetLinux() }
	assert.EqualExportedValues(t, want, resources())
	n.restart()
	assert.EqualExportedValues(t, want, resources(), "the next server has read them")
	n.stop()
	file := filepath.Join(n.opts.Dir, "containers", id, resourcesFile)
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	n.start()
	assert.NoFileExists(t, file)
	assert.EqualExportedValues(t, config.Linux.Resources, resources())
}

func TestUpdateResourcesNot(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{NoCgroups: true})
	p := n.pod()
	config := shell("c", "exec sleep 1000")
	config.Linux.Resources = &criv1.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}
	id := p.run(config)
	err := n.update(id, &criv1.LinuxContainerResources{MemoryLimitInBytes: 64 << 20})
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
	assert.ErrorContains(t, err, "default/pod-1/c: the memory limit cannot be changed: no cgroup for it can be written")
	require.NoError(t, n.update(id, &criv1.LinuxContainerResources{MemoryLimitInBytes: 32 << 20,
		CpuShares: 100, OomScoreAdj: 5}),
		"a limit that stays has its warning, and a weight is none")
	n.kill(id, 0)
	assert.Equal(t, codes.FailedPrecondition, status.Code(n.update(id, &criv1.LinuxContainerResources{CpuShares: 100})))
	assert.Equal(t, codes.NotFound, status.Code(n.update("none", nil)))
}

// The kernel may take seconds to lower a limit of memory. Other calls do not wait for that.
func TestUpdateThatTakesLong(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{NoCgroups: true})
	id, err := n.pod().create(shell("c", "true"))
	require.NoError(t, err)
	c, err := n.server.container(id)
	require.NoError(t, err)
	c.rec.Cgroup.V2 = t.TempDir()
	limit := filepath.Join(c.rec.Cgroup.V2, "memory.max")
	require.NoError(t, unix.Mkfifo(limit, 0o600)) // opening it for writing waits for a reader
	done := make(chan error, 1)
	go func() { done <- n.update(id, &criv1.LinuxContainerResources{MemoryLimitInBytes: 4096}) }()
	require.Eventually(t, func() bool {
		begun := !c.updating.TryLock()
		if !begun {
			c.updating.Unlock()
		}
		return begun
	}, time.Minute, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 10 {
		_, err = n.rs.ListContainers(ctx, &criv1.ListContainersRequest{})
		require.NoError(t, err)
		_, err = n.rs.ContainerStatus(ctx, &criv1.ContainerStatusRequest{ContainerId: id})
		require.NoError(t, err)
	}
	written, err := os.ReadFile(limit)
	require.NoError(t, err)
	assert.Equal(t, "4096", string(written))
	require.NoError(t, <-done)
	assert.EqualValues(t, 4096, n.status(id).GetResources().GetLinux().GetMemoryLimitInBytes())
}

// TestUpdateCgroup changes a limit of the kernel's while the container runs.
func TestUpdateCgroup(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{PIDLimit: 100})
	p := n.pod()
	id := p.run(shell("c", "exec sleep 1000"))
	dir := n.limitsOf(id)
	if dir == "" {
		t.Skip("no pids cgroup can be made here")
	}
	require.NoError(t, n.update(id, &criv1.LinuxContainerResources{Unified: map[string]string{"pids.max": "50"}}))
	data, err := os.ReadFile(filepath.Join(dir, "pids.max"))
	require.NoError(t, err)
	assert.Equal(t, "50", strings.TrimSpace(string(data)))
}
