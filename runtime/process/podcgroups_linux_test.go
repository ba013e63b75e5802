package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

func TestPodCgroups(t *testing.T) {
	t.Parallel()
	testPodCgroups(t)
}

func TestGuestPodCgroups(t *testing.T) {
	inGuest(t)
	testPodCgroups(t)
}

// record is what the server has recorded of the sandbox.
func (p *pod) record() sandboxRecord {
	p.n.t.Helper()
	var rec sandboxRecord
	require.NoError(p.n.t, supervise.ReadFile(filepath.Join(p.n.opts.Dir, "sandboxes", p.id+".json"), &rec))
	return rec
}

// pidsOf is the cgroup of the pod that counts its processes.
func (p *pod) pidsOf() string {
	c := p.record().Cgroup
	if dir := c.V1["pids"]; dir != "" {
		return dir
	}
	return c.V2
}

// What no container gets is in the log with verbosity 1, anything else with 0, and each once.
func TestUsualWarnings(t *testing.T) {
	var log []string
	s := &Server{opts: Options{Logger: funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{})}}
	for range 2 {
		f := &findings{}
		f.warnUsual("there is no network")
		f.warn("SELinux options have no effect")
		s.warn(f)
		assert.Len(t, f.warnings, 2, "both are in the status")
	}
	if assert.Len(t, log, 1) {
		assert.Contains(t, log[0], "SELinux")
	}
}

// The server knows whether it can limit pods, and leaves nothing of the attempt behind.
func TestLimitsPods(t *testing.T) {
	t.Parallel()
	assert.False(t, startNode(t, Options{NoCgroups: true}).server.LimitsPods())
	n := startNode(t, Options{})
	can := n.server.LimitsPods()
	probe := n.server.cgroups.ofPod("probe")
	for _, dir := range append(values(probe.V1), probe.V2) {
		if dir != "" {
			assert.NoDirExists(t, dir)
		}
	}
	p := n.pod()
	config := shell("c", "sleep 100")
	config.Linux.Resources = &criv1.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuQuota: 50_000, CpuPeriod: 100_000}
	p.run(config)
	missed := strings.Contains(n.log.all(), "limit")
	assert.Equal(t, can, !missed, "as the first container of a pod finds")
}

func (p *pod) remove() {
	p.n.t.Helper()
	_, err := p.n.rs.RemovePodSandbox(context.Background(), &criv1.RemovePodSandboxRequest{PodSandboxId: p.id})
	require.NoError(p.n.t, err)
}

// assertNoCgroups asserts that the cgroups of a sandbox do not exist.
func assertNoCgroups(t *testing.T, rec sandboxRecord) {
	t.Helper()
	for _, dir := range append([]string{rec.Cgroup.V2}, values(rec.Cgroup.V1)...) {
		if dir != "" {
			assert.NoDirExists(t, dir)
		}
	}
}

func values(m map[string]string) (all []string) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// A pod that forks without end, in two containers, and one that takes all memory have their limits, and leave
// another pod alone. The cgroups of a pod last as long as it does.
func testPodCgroups(t *testing.T) {
	n := startNode(t, Options{PIDLimit: 100})
	good, bomb, hog := n.pod(), n.pod(), n.pod()
	assertNoCgroups(t, good.record()) // a sandbox costs nothing before it has a container
	goodID := good.run(shell("c", "while sleep 0.05; do echo up; done"))
	if n.limitsOf(goodID) == "" {
		t.Skip("no pids cgroup can be made here")
	}

	// A shell that cannot fork ends, and a container cannot start then. So the forks begin when both have a process for
	// them.
	begin := filepath.Join(t.TempDir(), "begin")
	forks := `trap '' TERM; bomb() { while :; do bomb & done; }; { until [ -e ` + begin +
		` ]; do sleep 0.01; done; bomb; } 2>/dev/null & echo up; while :; do :; done`
	bomb.run(shell("a", forks))
	b := bomb.run(shell("b", forks))
	eventually(t, func() bool { return bomb.log("a") != "" && bomb.log("b") != "" }, "the containers do not start")
	require.NoError(t, os.WriteFile(begin, nil, 0o600))
	eventually(t, func() bool { return refusedForks(n.limitsOf(b)) > 0 }, "the pod does not reach its limit")
	limit, err := os.ReadFile(filepath.Join(bomb.pidsOf(), "pids.max"))
	require.NoError(t, err)
	assert.Equal(t, "100", strings.TrimSpace(string(limit)))
	used, ok := readNumber(filepath.Join(bomb.pidsOf(), "pids.current"))
	assert.True(t, ok)
	assert.LessOrEqual(t, used, uint64(100), "both containers together")

	config := shell("c", `x=a; while :; do x="$x$x"; done`)
	config.Linux.Resources = &criv1.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}
	hogID := hog.run(config)
	assert.Equal(t, "OOMKilled", n.exited(hogID).GetReason())

	// What was used by a container that is gone is not forgotten.
	_, err = n.rs.RemoveContainer(context.Background(), &criv1.RemoveContainerRequest{ContainerId: hogID})
	require.NoError(t, err)
	stats, err := n.rs.PodSandboxStats(context.Background(), &criv1.PodSandboxStatsRequest{PodSandboxId: hog.id})
	require.NoError(t, err)
	assert.Positive(t, stats.GetStats().GetLinux().GetCpu().GetUsageCoreNanoSeconds().GetValue())

	before := strings.Count(good.log("c"), "up")
	eventually(t, func() bool { return strings.Count(good.log("c"), "up") > before+2 }, "the good pod has stopped")
	assert.Equal(t, criv1.ContainerState_CONTAINER_RUNNING, n.status(goodID).GetState())

	// A server that was killed while it created a container has left a cgroup without a record.
	lost := within(bomb.record().Cgroup, strings.Repeat("0", 64))
	require.False(t, makeCgroups(lost).None())
	n.restart()
	for _, p := range []*pod{bomb, hog, good} {
		rec := p.record()
		p.remove()
		assertNoCgroups(t, rec)
	}
}
