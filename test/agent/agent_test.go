package agent_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/eviction"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // that of agents without a logger, thousands of lines
	goleak.VerifyTestMain(m)
}

func makePod(name string) *v1.Pod {
	return testpod.New(name, testpod.Restart(v1.RestartPolicyAlways), testpod.Containers("main"))
}

// node is an agent under test, in virtual time.
type node struct {
	*kubeletkit.Agent
	runtime *fake.Runtime
	source  *podconfigfake.Source
	root    string
	cancel  context.CancelFunc
	done    chan error
}

// startNode starts an agent whose sources are the given ones and, after them, one that
// the test drives.
func startNode(t *testing.T, root string, rt *fake.Runtime, sources ...podconfig.Source) *node {
	t.Helper()
	return startNodeWith(t, root, rt, func(o *kubeletkit.Options) { o.Sources = append(sources, o.Sources...) })
}

// startNodeWith starts an agent with changed options.
func startNodeWith(t *testing.T, root string, rt *fake.Runtime, change func(*kubeletkit.Options)) *node {
	t.Helper()
	n := &node{runtime: rt, source: podconfigfake.NewSource("test"), root: root, done: make(chan error, 1)}
	opts := kubeletkit.Options{
		NodeName: "node", RootDir: root, Runtime: rt, Sources: []podconfig.Source{n.source},
		Host: &runtime.Host{Hostname: "host", IPs: []string{"192.0.2.1"}},
	}
	change(&opts)
	var err error
	n.Agent, err = kubeletkit.New(opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	n.cancel = cancel
	go func() { n.done <- n.Run(ctx) }()
	return n
}

func (n *node) stop(t *testing.T) {
	t.Helper()
	n.cancel()
	require.NoError(t, <-n.done)
}

// after lets the time pass and returns the pods by name.
func (n *node) after(d time.Duration) map[string]*v1.Pod {
	time.Sleep(d)
	synctest.Wait()
	out := map[string]*v1.Pod{}
	for _, p := range n.Pods() {
		out[p.Name] = p
	}
	return out
}

// held returns the names of the pods of which the runtime holds something, dead or not.
func held(t *testing.T, rt *fake.Runtime) []string {
	t.Helper()
	pods, err := rt.ListPods(t.Context())
	require.NoError(t, err)
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

func TestLifeOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, t.TempDir(), fake.New(fake.Options{}))
		defer n.stop(t)
		n.source.Set(makePod("web"), makePod("db"))

		pods := n.after(time.Second)
		require.Len(t, pods, 2)
		web := pods["web"]
		assert.Equal(t, v1.PodRunning, web.Status.Phase)
		assert.Regexp(t, `^10\.0\.0\.\d+$`, web.Status.PodIP)
		assert.Equal(t, "192.0.2.1", web.Status.HostIP)

		n.runtime.Exit(fake.Target{Pod: "web"}, 1)
		web = n.after(2 * time.Second)["web"]
		assert.Equal(t, int32(1), web.Status.ContainerStatuses[0].RestartCount, "the first restart comes at once")
		n.runtime.Exit(fake.Target{Pod: "web"}, 1)
		web = n.after(5 * time.Second)["web"]
		assert.Equal(t, "CrashLoopBackOff", web.Status.ContainerStatuses[0].State.Waiting.Reason)
		web = n.after(7 * time.Second)["web"]
		assert.NotNil(t, web.Status.ContainerStatuses[0].State.Running, "the second after 10 s")
		assert.Equal(t, int32(2), web.Status.ContainerStatuses[0].RestartCount)
		assert.Equal(t, int32(0), n.after(0)["db"].Status.ContainerStatuses[0].RestartCount)

		dir := filepath.Join(n.root, "pods", "uid-web")
		assert.DirExists(t, dir)
		n.source.Set(makePod("db"))
		pods = n.after(10 * time.Second)
		assert.Len(t, pods, 1)
		assert.Equal(t, []string{"db"}, held(t, n.runtime), "nothing of the pod is left in the runtime")
		assert.NoDirExists(t, dir)
		require.NoError(t, n.Healthy())
	})
}

func TestASecondAgentAdopts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, root := fake.New(fake.Options{}), t.TempDir()
		first := startNode(t, root, rt)
		first.source.Set(makePod("kept"), makePod("dropped"))
		before := first.after(5 * time.Second)
		first.stop(t)
		assert.Len(t, rt.Running(fake.Target{}), 2, "stopping the agent stops no pod")
		rt.ForgetCalls()
		time.Sleep(time.Minute)

		second := startNode(t, root, rt)
		defer second.stop(t)
		assert.Empty(t, second.after(time.Minute), "nothing is desired yet, and nothing is stopped")
		assert.Empty(t, rt.Transcript(fake.Target{}))
		second.source.Set(makePod("kept"))
		after := second.after(5 * time.Second)
		assert.Equal(t, before["kept"].Status.ContainerStatuses[0].ContainerID,
			after["kept"].Status.ContainerStatuses[0].ContainerID)
		assert.True(t, before["kept"].Status.StartTime.Equal(after["kept"].Status.StartTime))
		assert.Empty(t, rt.Transcript(fake.Target{Pod: "kept"}))
		assert.Equal(t, []string{"kept"}, held(t, rt), "what was dropped meanwhile is gone")
	})
}

// A manifest that was edited while the agent was away is another pod of the same
// name. Both would bind the same ports.
func TestAnEditedPodWaitsForTheOneThatAnEarlierAgentStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		static := func(uid types.UID) *v1.Pod {
			pod := makePod("web")
			pod.UID = uid
			pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
			return pod
		}
		rt, root := fake.New(fake.Options{}), t.TempDir()
		rt.Script(fake.Target{UID: "u1"}, fake.Behavior{StopDelay: 20 * time.Second})
		first := startNode(t, root, rt)
		first.source.Set(static("u1"), makePod("other"))
		first.after(5 * time.Second)
		first.stop(t)

		// Another source does not deliver for long: pods that it may have continue to run.
		late := podconfigfake.NewSource("late")
		n := startNode(t, root, rt, late)
		defer n.stop(t)
		began := time.Now()
		n.source.Set(static("u2"))
		assert.Empty(t, n.after(10 * time.Second)["web"].Status.Phase, "the old one still ends")
		assert.Equal(t, v1.PodRunning, n.after(30 * time.Second)["web"].Status.Phase)
		started := rt.Instances(fake.Target{UID: "u2"})[0].StartedAt
		assert.GreaterOrEqual(t, started.Sub(began), 20*time.Second)
		assert.Empty(t, rt.Running(fake.Target{UID: "u1"}))
		assert.False(t, n.Synced())

		late.Set(makePod("other"))
		n.after(time.Minute)
		assert.Equal(t, []string{"default/other/main#0 running", "default/web/main#0 running"},
			texts(rt.Instances(fake.Target{})),
			"the other pod is adopted, and nothing of the old one is left")
		assert.Equal(t, started, rt.Instances(fake.Target{UID: "u2"})[0].StartedAt)
		assert.NoDirExists(t, filepath.Join(root, "pods", "u1"))
		assert.True(t, n.Synced())
	})
}

func texts(instances []fake.Instance) []string {
	var out []string
	for i := range instances {
		out = append(out, instances[i].String())
	}
	slices.Sort(out)
	return out
}

func TestLogsDirectoryIsForOneAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := t.TempDir()
		start := func(name string) (stop context.CancelFunc, done chan error) {
			a, err := kubeletkit.New(kubeletkit.Options{
				NodeName: name, RootDir: t.TempDir(), Runtime: fake.New(fake.Options{}),
				Host:    &runtime.Host{PodLogsDir: logs},
				Sources: []podconfig.Source{podconfigfake.NewSource("test")},
			})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done = make(chan error, 1)
			go func() { done <- a.Run(ctx) }()
			synctest.Wait()
			return cancel, done
		}
		stop, done := start("a")
		stopOther, other := start("b")
		require.ErrorContains(t, <-other, "would remove the logs of the other's pods")
		stopOther()
		stop()
		require.NoError(t, <-done)
	})
}

func TestTheRuntimeMayBeAwayAtTheStartAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Stop()
		n := startNode(t, t.TempDir(), rt)
		defer n.stop(t)
		n.source.Set(makePod("web"))
		assert.Empty(t, n.after(4*time.Minute), "the change waits for the runtime")
		require.NoError(t, n.Healthy(), "it still starts")
		n.after(2 * time.Minute)
		require.ErrorContains(t, n.Healthy(), "its sync loop has made no round yet")
		rt.Start(fake.Keep)
		assert.Equal(t, v1.PodRunning, n.after(10 * time.Second)["web"].Status.Phase)
		rt.Stop()
		assert.Equal(t, v1.PodRunning, n.after(10 * time.Minute)["web"].Status.Phase, "what ran is thought to run")
		require.Error(t, n.Healthy())
		rt.Start(fake.Keep)
		n.after(10 * time.Second)
		require.NoError(t, n.Healthy())
		rt.Exit(fake.Target{Pod: "web"}, 1)
		assert.Equal(t, int32(1), n.after(5 * time.Second)["web"].Status.ContainerStatuses[0].RestartCount)
	})
}

func TestRootDirectoryIsForOneAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		n := startNode(t, root, fake.New(fake.Options{}))
		synctest.Wait()
		other := startNode(t, root, fake.New(fake.Options{}))
		require.ErrorContains(t, <-other.done, "in use by another agent")
		other = startNode(t, root, fake.New(fake.Options{}))
		time.Sleep(time.Second)
		n.stop(t)
		synctest.Wait()
		time.Sleep(time.Second)
		require.NoError(t, other.RuntimeReady(), "it starts when the other has ended")
		other.stop(t)
		n = startNode(t, root, fake.New(fake.Options{}))
		synctest.Wait()
		require.ErrorIs(t, n.Run(t.Context()), runtime.ErrAlreadyRunning)
		n.stop(t)
		again := startNode(t, root, fake.New(fake.Options{}))
		synctest.Wait()
		again.stop(t)
	})
}

func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, src := fake.New(fake.Options{}), podconfigfake.NewSource("test")
		src.Set(makePod("a"), makePod("b"))
		agent, err := kubeletkit.New(kubeletkit.Options{
			NodeName: "node", RootDir: t.TempDir(), Runtime: rt, Sources: []podconfig.Source{src},
			Host:      &runtime.Host{PodLogsDir: t.TempDir()},
			Admission: kubeletkit.Admission{Limits: syncloop.Limits{MaxPods: 1}},
		})
		require.NoError(t, err)
		report, err := agent.RunOnce(t.Context())
		require.ErrorContains(t, err, "pod default/b failed")
		assert.Equal(t, "default/a: Running\ndefault/b: Failed (Pod was rejected: Node didn't have enough resource: "+
			"pods, requested: 1, used: 1, capacity: 1)\n", report.String())
		assert.Equal(t, []string{"default/a/main#0 running"}, texts(rt.Instances(fake.Target{})),
			"the pod goes on running")
	})
}

func TestNewNamesAllThatIsWrong(t *testing.T) {
	_, err := kubeletkit.New(kubeletkit.Options{NodeName: "not a name!", RootDir: "relative"})
	for _, part := range []string{"Options.Runtime", "Options.NodeName", "Options.RootDir"} {
		require.ErrorContains(t, err, part)
	}
	_, err = kubeletkit.New(kubeletkit.Options{
		NodeName: "node", Runtime: fake.New(fake.Options{}), Host: &runtime.Host{},
		Sources: []podconfig.Source{nil}, Join: []lifecycle.Component{nil},
		Volumes: volume.Options{Plugins: []volume.Plugin{volume.HostPath{}, nil}},
		Prober:  prober.Options{Handlers: []prober.Handler{nil}},
	})
	for _, part := range []string{"Options.Sources[0] is nil", "Options.Join[0] is nil",
		"Options.Volumes.Plugins[1] is nil", "Options.Prober.Handlers[0] is nil"} {
		require.ErrorContains(t, err, part)
	}
	_, err = kubeletkit.New(kubeletkit.Options{
		NodeName: "node", Runtime: (*fake.Runtime)(nil), Host: &runtime.Host{},
		Sources: []podconfig.Source{(*podconfigfake.Source)(nil)}, Join: []lifecycle.Component{
			(*eviction.Manager)(nil)},
	})
	for _, part := range []string{
		"Options.Runtime holds a nil *fake.Runtime", "Options.Sources[0] holds a nil *fake.Source",
		"Options.Join[0] holds a nil *eviction.Manager",
	} {
		require.ErrorContains(t, err, part)
	}
	_, err = kubeletkit.New(kubeletkit.Options{
		NodeName: "node", Runtime: fake.New(fake.Options{}), Host: &runtime.Host{},
		Override: kubeletkit.Overrides{PodManager: kubeletkit.Replace[podmanager.Manager]((*podmanager.Store)(nil))},
	})
	require.ErrorContains(t, err, "Options.Override.PodManager returned nil")
}

func TestDetectHost(t *testing.T) {
	h, err := kubeletkit.DetectHost(filepath.Join(t.TempDir(), "not", "made"))
	require.NoError(t, err)
	assert.NotEmpty(t, h.Hostname)
	for _, ip := range h.IPs { // a machine without a default route has none
		assert.False(t, net.ParseIP(ip).IsLoopback(), ip)
	}
	assert.False(t, h.Allocatable.Cpu().IsZero())
	assert.Equal(t, goruntime.GOOS == "linux", !h.Allocatable.StorageEphemeral().IsZero())
}
