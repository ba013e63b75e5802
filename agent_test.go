package kubeletkit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a runtime that runs containers in name only. What SyncPod does is
// planned as it is for a real runtime.
type memory struct {
	mu      sync.Mutex
	pods    map[types.UID]*runtime.PodStatus
	crashes map[types.UID]map[string]plan.Crash
	away    error
	ids     int
	// slow is how long a pod takes to stop; trace has what started and stopped.
	slow  time.Duration
	trace []string
}

func newMemory() *memory {
	return &memory{pods: map[types.UID]*runtime.PodStatus{}, crashes: map[types.UID]map[string]plan.Crash{}}
}

func (m *memory) id() string { m.ids++; return fmt.Sprint("id-", m.ids) }

func (m *memory) ListPods(_ context.Context, all bool) ([]*runtime.Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away != nil {
		return nil, m.away
	}
	var out []*runtime.Pod
	for _, s := range m.pods {
		p := &runtime.Pod{PodRef: s.PodRef}
		for i := range s.Sandboxes {
			p.Sandboxes = append(p.Sandboxes, s.Sandboxes[i].Sandbox)
		}
		for i := range s.Containers {
			p.Containers = append(p.Containers, s.Containers[i].Container)
		}
		if all || p.Running() {
			out = append(out, p)
		}
	}
	return out, nil
}

func (m *memory) InspectPod(_ context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.pods[ref.UID]
	if !ok {
		return &runtime.PodStatus{PodRef: ref}, m.away
	}
	c := *s
	c.Sandboxes, c.Containers = slices.Clone(s.Sandboxes), slices.Clone(s.Containers)
	return &c, m.away
}

func (m *memory) SyncPod(_ context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away != nil {
		return runtime.SyncResult{}, m.away
	}
	uid, now := req.Pod.UID, time.Now()
	do := plan.Compute(plan.Input{Pod: req.Pod, Status: req.Status, Probes: req.Probes, Now: now, Crashes: m.crashes[uid]})
	m.crashes[uid] = do.Crashes
	s := m.pods[uid]
	if s == nil {
		s = &runtime.PodStatus{PodRef: runtime.RefOf(req.Pod)}
		m.pods[uid] = s
	}
	if do.CreateSandbox {
		s.IPs = []string{"10.0.0.1"}
		s.Sandboxes = slices.Insert(s.Sandboxes, 0, runtime.SandboxStatus{
			Sandbox: runtime.Sandbox{ID: m.id(), Attempt: do.Attempt, State: runtime.SandboxReady, CreatedAt: now}, IPs: s.IPs,
		})
	}
	for _, start := range do.Start {
		m.trace = append(m.trace, "started "+string(uid))
		c := runtime.ContainerStatus{StartedAt: now, RestartCount: start.RestartCount}
		c.ID, c.Name, c.SandboxID = runtime.ContainerID{Type: "memory", ID: m.id()}, start.Container.Name, s.Sandboxes[0].ID
		c.State, c.CreatedAt, c.Hash = runtime.ContainerRunning, now, runtime.ContainerHash(start.Container)
		s.Containers = slices.Insert(s.Containers, 0, c)
	}
	return runtime.SyncResult{Changed: do.CreateSandbox || len(do.Start) > 0, RetryAfter: do.RetryAfter, Waiting: do.Waiting}, nil
}

func (m *memory) KillPod(ctx context.Context, req runtime.PodKill) error {
	select {
	case <-time.After(m.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.pods[req.Status.UID]; s != nil {
		m.trace = append(m.trace, "stopped "+string(s.UID))
		for i := range s.Containers {
			m.exit(&s.Containers[i], 137)
		}
		for i := range s.Sandboxes {
			s.Sandboxes[i].State = runtime.SandboxNotReady
		}
	}
	return m.away
}

func (m *memory) exit(c *runtime.ContainerStatus, code int32) {
	if c.State == runtime.ContainerRunning {
		c.State, c.ExitCode, c.FinishedAt = runtime.ContainerExited, code, time.Now()
	}
}

// crash ends all running containers of the pods with that name.
func (m *memory) crash(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.pods {
		for i := range s.Containers {
			if s.Name == name {
				m.exit(&s.Containers[i], 1)
			}
		}
	}
}

func (m *memory) setAway(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = err
}

func (m *memory) held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pods)
}

func (m *memory) Exec(context.Context, runtime.ContainerID, []string, time.Duration) (runtime.ExecResult, error) {
	return runtime.ExecResult{}, nil
}

func (m *memory) RemoveContainer(_ context.Context, id runtime.ContainerID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.pods {
		s.Containers = slices.DeleteFunc(s.Containers, func(c runtime.ContainerStatus) bool { return c.ID == id })
	}
	return nil
}

func (m *memory) RemoveSandbox(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.pods, func(_ types.UID, s *runtime.PodStatus) bool {
		s.Sandboxes = slices.DeleteFunc(s.Sandboxes, func(b runtime.SandboxStatus) bool { return b.ID == id })
		return len(s.Sandboxes) == 0 && len(s.Containers) == 0
	})
	return nil
}

func (m *memory) Check(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.away
}

// source is desired state that the test sets.
type source struct {
	pods chan []*v1.Pod
}

func newSource() source { return source{pods: make(chan []*v1.Pod)} }

func (source) Name() string { return "test" }
func (s source) Run(ctx context.Context, set func([]*v1.Pod)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case pods := <-s.pods:
			set(pods)
		}
	}
}

func makePod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "main", Image: "busybox"}}},
	}
}

// node is an agent under test, in virtual time.
type node struct {
	*kubeletkit.Agent
	runtime *memory
	source  source
	root    string
	cancel  context.CancelFunc
	done    chan error
}

func startNode(t *testing.T, root string, rt *memory) *node {
	t.Helper()
	n := &node{runtime: rt, source: newSource(), root: root, done: make(chan error, 1)}
	var err error
	n.Agent, err = kubeletkit.New(kubeletkit.Options{
		NodeName: "node", RootDir: root, PodLogsDir: filepath.Join(root, "logs"), Runtime: rt, Sources: []podconfig.Source{n.source},
		Host: &runtime.Host{Hostname: "host", IPs: []string{"192.0.2.1"}},
	})
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

func TestTheWaysThroughTheHouse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, t.TempDir(), newMemory())
		defer n.stop(t)
		n.source.pods <- []*v1.Pod{makePod("web"), makePod("db")}

		pods := n.after(time.Second)
		require.Len(t, pods, 2)
		web := pods["web"]
		assert.Equal(t, v1.PodRunning, web.Status.Phase)
		assert.Equal(t, "10.0.0.1", web.Status.PodIP)
		assert.Equal(t, "192.0.2.1", web.Status.HostIP)

		n.runtime.crash("web")
		web = n.after(2 * time.Second)["web"]
		assert.Equal(t, int32(1), web.Status.ContainerStatuses[0].RestartCount, "the first restart comes at once")
		n.runtime.crash("web")
		web = n.after(5 * time.Second)["web"]
		assert.Equal(t, "CrashLoopBackOff", web.Status.ContainerStatuses[0].State.Waiting.Reason)
		web = n.after(7 * time.Second)["web"]
		assert.NotNil(t, web.Status.ContainerStatuses[0].State.Running, "the second after 10 s")
		assert.Equal(t, int32(2), web.Status.ContainerStatuses[0].RestartCount)
		assert.Equal(t, int32(0), n.after(0)["db"].Status.ContainerStatuses[0].RestartCount)

		dir := filepath.Join(n.root, "pods", "uid-web")
		assert.DirExists(t, dir)
		n.source.pods <- []*v1.Pod{makePod("db")}
		pods = n.after(10 * time.Second)
		assert.Len(t, pods, 1)
		assert.Equal(t, 1, n.runtime.held(), "nothing of the pod is left in the runtime")
		assert.NoDirExists(t, dir)
		require.NoError(t, n.Healthy())
	})
}

func TestASecondAgentAdopts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, root := newMemory(), t.TempDir()
		first := startNode(t, root, rt)
		first.source.pods <- []*v1.Pod{makePod("kept"), makePod("dropped")}
		before := first.after(5 * time.Second)
		assert.Equal(t, 2, rt.held())
		first.stop(t)
		assert.Equal(t, 2, rt.held(), "stopping the agent stops no pod")
		time.Sleep(time.Minute)

		second := startNode(t, root, rt)
		defer second.stop(t)
		assert.Empty(t, second.after(time.Minute), "nothing is desired yet, and nothing is stopped")
		assert.Equal(t, 2, rt.held())
		second.source.pods <- []*v1.Pod{makePod("kept")}
		after := second.after(5 * time.Second)
		assert.Equal(t, before["kept"].Status.ContainerStatuses[0].ContainerID, after["kept"].Status.ContainerStatuses[0].ContainerID)
		assert.True(t, before["kept"].Status.StartTime.Equal(after["kept"].Status.StartTime))
		assert.Equal(t, 1, rt.held(), "what was dropped meanwhile is gone")
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
		rt, root := newMemory(), t.TempDir()
		first := startNode(t, root, rt)
		first.source.pods <- []*v1.Pod{static("u1"), makePod("other")}
		first.after(5 * time.Second)
		first.stop(t)
		rt.mu.Lock()
		rt.slow, rt.trace = 20*time.Second, nil
		rt.mu.Unlock()

		// Another source does not deliver for long: what it may want goes on running.
		late := newSource()
		second, err := kubeletkit.New(kubeletkit.Options{
			NodeName: "node", RootDir: root, PodLogsDir: filepath.Join(root, "logs"), Runtime: rt, Host: &runtime.Host{},
			Sources: []podconfig.Source{named{name: "late", ch: late.pods}, named{name: "early", ch: first.source.pods}},
		})
		require.NoError(t, err)
		n := &node{Agent: second, runtime: rt, source: first.source, done: make(chan error, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		n.cancel = cancel
		go func() { n.done <- n.Run(ctx) }()
		defer n.stop(t)

		n.source.pods <- []*v1.Pod{static("u2")}
		assert.Empty(t, n.after(10 * time.Second)["web"].Status.Phase, "the old one still ends")
		assert.Equal(t, v1.PodRunning, n.after(30 * time.Second)["web"].Status.Phase)
		rt.mu.Lock()
		assert.Equal(t, []string{"stopped u1", "started u2"}, rt.trace)
		rt.mu.Unlock()
		assert.False(t, n.Synced())

		late.pods <- []*v1.Pod{makePod("other")}
		n.after(time.Minute)
		rt.mu.Lock()
		assert.Equal(t, []string{"stopped u1", "started u2"}, rt.trace, "the other pod is adopted")
		rt.mu.Unlock()
		assert.Equal(t, 2, rt.held(), "nothing of the old one is left")
		assert.NoDirExists(t, filepath.Join(root, "pods", "u1"))
		assert.True(t, n.Synced())
	})
}

// named is a source with another name and channel.
type named struct {
	name string
	ch   chan []*v1.Pod
}

func (n named) Name() string { return n.name }
func (n named) Run(ctx context.Context, set func([]*v1.Pod)) error {
	return source{n.ch}.Run(ctx, set)
}

func TestLogsDirectoryIsForOneAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := t.TempDir()
		start := func(name string) (stop context.CancelFunc, done chan error) {
			a, err := kubeletkit.New(kubeletkit.Options{
				NodeName: name, RootDir: t.TempDir(), PodLogsDir: logs, Runtime: newMemory(), Host: &runtime.Host{},
				Sources: []podconfig.Source{newSource()},
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
		rt := newMemory()
		rt.setAway(errors.New("no socket"))
		n := startNode(t, t.TempDir(), rt)
		defer n.stop(t)
		go func() { n.source.pods <- []*v1.Pod{makePod("web")} }()
		assert.Empty(t, n.after(4*time.Minute), "the change waits for the runtime")
		rt.setAway(nil)
		assert.Equal(t, v1.PodRunning, n.after(10 * time.Second)["web"].Status.Phase)
		rt.setAway(errors.New("connection refused"))
		assert.Equal(t, v1.PodRunning, n.after(10 * time.Minute)["web"].Status.Phase, "what ran is thought to run")
		require.Error(t, n.Healthy())
		rt.setAway(nil)
		n.after(10 * time.Second)
		require.NoError(t, n.Healthy())
		rt.crash("web")
		assert.Equal(t, int32(1), n.after(5 * time.Second)["web"].Status.ContainerStatuses[0].RestartCount)
	})
}

func TestRootDirectoryIsForOneAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		n := startNode(t, root, newMemory())
		synctest.Wait()
		other := startNode(t, root, newMemory())
		require.ErrorContains(t, <-other.done, "in use by another agent")
		require.ErrorIs(t, n.Run(t.Context()), kubeletkit.ErrAlreadyRunning)
		n.stop(t)
		again := startNode(t, root, newMemory())
		synctest.Wait()
		again.stop(t)
	})
}

func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, src := newMemory(), newSource()
		agent, err := kubeletkit.New(kubeletkit.Options{
			NodeName: "node", RootDir: t.TempDir(), PodLogsDir: t.TempDir(), Runtime: rt, Sources: []podconfig.Source{src}, Host: &runtime.Host{},
			Limits: syncloop.Limits{MaxPods: 1},
		})
		require.NoError(t, err)
		go func() { src.pods <- []*v1.Pod{makePod("a"), makePod("b")} }()
		report, err := agent.RunOnce(t.Context())
		require.ErrorContains(t, err, "pod default/b failed")
		assert.Equal(t, "default/a: Running\ndefault/b: Failed (Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1)\n", report.String())
		assert.Equal(t, 1, rt.held(), "the pod goes on running")
	})
}

func TestNewNamesAllThatIsWrong(t *testing.T) {
	_, err := kubeletkit.New(kubeletkit.Options{NodeName: "not a name!", RootDir: "relative"})
	for _, part := range []string{"Options.Runtime", "Options.NodeName", "Options.RootDir"} {
		require.ErrorContains(t, err, part)
	}
}

func TestDetectHost(t *testing.T) {
	h, err := kubeletkit.DetectHost()
	require.NoError(t, err)
	assert.NotEmpty(t, h.Hostname)
	assert.NotEmpty(t, h.IPs)
	assert.False(t, h.Allocatable.Cpu().IsZero())
}

// The agent runs a pod until it is told to stop; here the runtime is a toy.
func Example() {
	root, _ := os.MkdirTemp("", "agent")
	defer func() { _ = os.RemoveAll(root) }()
	src := newSource()
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName:   "edge-7",
		RootDir:    root,
		PodLogsDir: filepath.Join(root, "logs"),
		Runtime:    newMemory(), // cri.Dial returns the real one
		Sources:    []podconfig.Source{src},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { src.pods <- []*v1.Pod{makePod("web")} }()
	report, err := agent.RunOnce(context.Background()) // agent.Run does not stop by itself
	fmt.Print(report)
	fmt.Println(err)
	// Output:
	// default/web: Running
	// <nil>
}
