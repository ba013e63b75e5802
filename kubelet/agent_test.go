package kubelet

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// A hardened configuration reaches the runtime.
func TestRuntimeOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file,
		header+"seccompDefault: true\ncpuCFSQuota: false\ncpuCFSQuotaPeriod: 5ms\nsingleProcessOOMKill: true\n")
	s, err := program.Parse([]string{"--config", file, "--container-runtime-endpoint=/run/cri.sock",
		"--root-dir=/var/lib/kubelet"})
	require.NoError(t, err)
	opts := runtimeOptions(s, nil, logr.Discard())
	assert.True(t, opts.SeccompDefault)
	assert.True(t, opts.NoCPUQuota)
	assert.Equal(t, 5*time.Millisecond, opts.CPUPeriod)
	assert.True(t, opts.KillProcessesSingly)
	assert.Equal(t, "/var/lib/kubelet/seccomp", opts.SeccompProfileRoot)

	s, err = program.Parse([]string{"--root-dir=/srv/agent"})
	require.NoError(t, err)
	opts = runtimeOptions(s, nil, logr.Discard())
	assert.Equal(t, "/srv/agent/seccomp", opts.SeccompProfileRoot)
	assert.False(t, opts.SeccompDefault || opts.NoCPUQuota || opts.KillProcessesSingly)
	assert.Equal(t, 100*time.Millisecond, opts.CPUPeriod)
}

// Wherever the logs are, links to them are where log shippers look.
func TestLinksToLogs(t *testing.T) {
	b := newBench(t)
	b.rt.Script(fake.Target{}, fake.Behavior{Output: "hello"})
	b.put("web", "i")
	b.start()
	b.await("web-n 1/1 Running", "pods")
	links, err := os.ReadDir(filepath.Join(b.root, "links"))
	require.NoError(t, err)
	assert.Len(t, links, 1)

	for _, tc := range []struct {
		args []string
		root string // what it is for root
	}{
		{[]string{"--container-runtime-endpoint=/run/cri.sock"}, "/var/log/containers"},
		{[]string{"--container-runtime-endpoint=/run/cri.sock", "--log-links-dir="}, ""},
		{nil, ""},
	} {
		s, err := program.Parse(append(tc.args, "--root-dir="+b.root))
		require.NoError(t, err)
		want := ""
		if os.Geteuid() == 0 {
			want = tc.root
		}
		assert.Equal(t, want, runtimeOptions(s, nil, logr.Discard()).LogLinksDir)
	}
}

// Without a cluster the runtime gets the addresses of pods from the configuration.
func TestPodCIDRWithoutACluster(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	refuse := b.rt.Inject(fake.Fault{Call: "UpdateRuntimeConfig", Err: errors.New("not yet")})
	handed := func() (n int) {
		for _, c := range b.rt.Calls(fake.Target{}) {
			if c.Method == "UpdateRuntimeConfig" {
				n++
			}
		}
		return n
	}
	b.start("--pod-cidr=10.7.0.0/24")
	require.Eventually(t, func() bool { return handed() == 1 }, time.Minute, 10*time.Millisecond)
	refuse()
	require.Eventually(t, func() bool { return handed() == 2 }, time.Minute, 10*time.Millisecond, "it is repeated")

	s, err := program.Parse([]string{"--pod-cidr=10.7.0.0/24", "--kubeconfig=/etc/kubernetes/kubelet.conf",
		"--container-runtime-endpoint", b.endpoint})
	require.NoError(t, err)
	var opts kubeletkit.Options
	addPodCIDR(&opts, s, nil)
	assert.Empty(t, opts.Join, "in a cluster they are in the node object")
}

// As with kubelet, a negative number keeps all dead containers.
func TestDeadContainersToKeep(t *testing.T) {
	containers := make([]runtime.Container, 5)
	for i := range containers {
		containers[i] = runtime.Container{Name: "main", State: runtime.ContainerExited}
	}
	for i := range containers {
		containers[i].ID.ID = strconv.Itoa(i)
	}
	for flag, removed := range map[int32]int{-1: 0, 0: 5, 1: 4, 3: 2} {
		node := gc.Plan(gc.Input{
			Pods:   []gc.Pod{{Pod: &runtime.Pod{Containers: containers}}},
			Policy: gc.Policy{MaxPerContainer: deadToKeep(-1), MaxContainers: limit(int(flag))}, Now: time.Now(),
		})
		assert.Len(t, node.Containers, removed, "%d on the node", flag)
		plan := gc.Plan(gc.Input{
			Pods:   []gc.Pod{{Pod: &runtime.Pod{Containers: containers}}},
			Policy: gc.Policy{MaxPerContainer: deadToKeep(flag)}, Now: time.Now(),
		})
		assert.Len(t, plan.Containers, removed, "%d", flag)
	}
}

// --maximum-dead-containers is a limit of the whole node, which the next collection enforces: the oldest go.
func TestDeadContainersOfTheNode(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("a", "i")
	b.put("b", "i")
	b.put("gone", "i")
	b.start("--maximum-dead-containers=1", "--maximum-dead-containers-per-container=5")
	dead := func() (all []fake.Instance) {
		for _, c := range b.rt.Instances(fake.Target{}) {
			if c.State == runtime.ContainerExited && c.Pod.Name != "gone-n" {
				all = append(all, c)
			}
		}
		slices.SortFunc(all, func(a, b fake.Instance) int { return b.CreatedAt.Compare(a.CreatedAt) })
		return all
	}
	for _, pod := range []string{"a", "b", "gone"} {
		b.await(pod+"-n 1/1 Running", "pods")
	}
	for _, pod := range []string{"a", "b"} {
		require.Equal(t, 1, b.rt.Exit(fake.Target{Pod: pod + "-n"}, 1))
		b.await(pod+"-n 1/1 Running 1", "pods")
	}
	before := dead()
	require.Len(t, before, 2, "until the next collection")
	b.remove("gone") // whose end brings it forward
	require.Eventually(t, func() bool { return len(dead()) == 1 }, time.Minute, 10*time.Millisecond)
	assert.Equal(t, before[0].ID, dead()[0].ID, "the newest stays")
	assert.Len(t, b.rt.Running(fake.Target{}), 2)
}

// Settings are no overrides: an override that makes a part anew has to pass on its history, metrics and logger.
func TestNoPartIsReplaced(t *testing.T) {
	for _, gate := range []string{"EventedPLEG=true", "EventedPLEG=false"} {
		s, err := program.Parse([]string{"--container-runtime-endpoint", "unix:///none", "--root-dir", t.TempDir(),
			"--feature-gates", gate})
		require.NoError(t, err)
		opts, err := agentOptions(s, nil, hooks{}, logr.Discard())
		require.NoError(t, err)
		assert.Zero(t, opts.Override)
		assert.Equal(t, gate == "EventedPLEG=false", opts.PLEG.WithoutEvents)
		assert.Equal(t, s.RuntimeRequestTimeout.Duration, opts.Cache.InspectTimeout)
	}
}

// The agent asks the runtime for its cgroup driver, and gives each pod the cgroup that
// kubelet would. What is left of a pod that is gone is removed.
func TestCgroups(t *testing.T) {
	b := newBench(t)
	b.put("web", "i")
	b.start()
	b.await("web-n 1/1 Running", "pods")
	require.True(t, slices.ContainsFunc(b.rt.Calls(fake.Target{}),
		func(c fake.Call) bool { return c.Method == "RuntimeConfig" }))

	ctx := t.Context()
	s, err := program.Parse([]string{"--container-runtime-endpoint", b.endpoint, "--root-dir", b.root})
	require.NoError(t, err)
	rt, cgroups, err := dialRuntime(ctx, s, nil, true, nil, nil, logr.Discard())
	require.NoError(t, err)
	defer func() { _ = rt.Close() }()
	require.NoError(t, rt.Check(ctx))
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	assert.Equal(t, "/kubepods/besteffort/podu", cgroups.Parent(pod))
	opts, err := agentOptions(s, rt, hooks{}, logr.Discard())
	require.NoError(t, err)
	opts.Join = nil
	require.NoError(t, joinCgroups(t.Context(), &opts, s, nil, "cgroupsPerQOS is false"))
	assert.Nil(t, opts.GC.Cgroups, "not an interface with nil in it")
	require.Len(t, opts.Join, 1, "it refuses limits that nothing holds")
	require.NoError(t, joinCgroups(t.Context(), &opts, s, cgroups, ""))
	require.Len(t, opts.Join, 2)
}
