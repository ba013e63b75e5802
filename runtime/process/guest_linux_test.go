package process

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// inGuest skips a test that needs a machine with cgroups of version 2: see docs/contribute/change.md.
func inGuest(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("runs in a guest only")
	}
}

// With cgroups of version 2, a container is started in its cgroup, and its limits are those of the kernel.
func TestGuestLimits(t *testing.T) {
	inGuest(t)
	n := startNode(t, Options{PIDLimit: 50})
	p := n.pod()
	hog := shell("hog", `x=a; while :; do x="$x$x"; done`)
	hog.Linux.Resources = &criv1.LinuxContainerResources{MemoryLimitInBytes: 32 << 20, CpuShares: 512,
		CpuQuota: 150_000, CpuPeriod: 100_000}
	id, err := p.create(hog)
	require.NoError(t, err)
	var rec containerRecord
	require.NoError(t, readRecord(n.opts.Dir, id, &rec))
	for file, want := range map[string]string{"memory.max": "33554432", "cpu.weight": "20", "cpu.max": "150000 100000",
		"../pids.max": "50"} {
		got, err := os.ReadFile(filepath.Join(rec.Cgroup.V2, file))
		require.NoError(t, err)
		assert.Equal(t, want, strings.TrimSpace(string(got)), file)
	}
	_, err = n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: id})
	require.NoError(t, err)
	assert.Equal(t, "OOMKilled", n.exited(id).GetReason())
}

// In a cgroup with processes, where no controller can be enabled, containers run without limits.
func TestGuestCgroupWithProcesses(t *testing.T) {
	inGuest(t)
	own := filepath.Join("/sys/fs/cgroup", "busy")
	require.NoError(t, os.Mkdir(own, 0o755))
	self := []byte(strconv.Itoa(os.Getpid()))
	require.NoError(t, os.WriteFile(filepath.Join(own, "cgroup.procs"), self, 0))
	t.Cleanup(func() {
		require.NoError(t, os.WriteFile("/sys/fs/cgroup/cgroup.procs", self, 0))
	})
	n := startNode(t, Options{PIDLimit: 50, CgroupRoot: "pods"})
	id := n.pod().run(shell("c", "exit 3"))
	assert.EqualValues(t, 3, n.exited(id).GetExitCode())
	assert.Equal(t, "domain\n", read(t, filepath.Join(own, "cgroup.type")))
	assert.Empty(t, read(t, filepath.Join(own, "cgroup.subtree_control")))
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(data)
}

// With version 2 too, the kernel never kills the supervisor, whether it kills one process or all of the
// container.
func TestGuestExecsAtTheMemoryLimit(t *testing.T) {
	inGuest(t)
	n := startNode(t, Options{})
	execsAtTheMemoryLimit(t, n, nil)
	execsAtTheMemoryLimit(t, n, map[string]string{"memory.oom.group": "1"})
}
