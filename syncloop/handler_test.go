package syncloop_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

type handlerBench struct {
	*syncloop.PodHandler
	pods    podSet
	workers *workers
	status  statuses
	runtime *lister
	dirs    *dirs
	kept    *keeper
	podsDir string
	gone    int
}

func newHandler(t *testing.T, opts syncloop.HandlerOptions) *handlerBench {
	t.Helper()
	b := &handlerBench{pods: newPodSet(), workers: &workers{states: map[types.UID]podworkers.State{}},
		status: newStatuses(), runtime: &lister{}, dirs: &dirs{}, kept: &keeper{}, podsDir: t.TempDir()}
	opts.PodsDir, opts.Gone = b.podsDir, func() { b.gone++ }
	var err error
	b.PodHandler, err = syncloop.NewHandler(syncloop.HandlerDeps{Pods: b.pods, Workers: b.workers, Status: b.status,
		Runtime: b.runtime, Steps: b.steps(t), Checkpoint: b.kept}, opts)
	require.NoError(t, err)
	return b
}

// dirsComponent removes the directories of pods that are gone.
type dirsComponent struct {
	dirs interface {
		Remove(ctx context.Context, ref runtime.PodRef, podDir string) error
	}
}

func (dirsComponent) Name() string { return "dirs" }
func (c dirsComponent) Gone(ctx context.Context, req lifecycle.GoneRequest) error {
	if _, err := os.Stat(req.Dir); err != nil {
		return nil
	}
	return c.dirs.Remove(ctx, req.Pod, req.Dir)
}

func stepsOf(t *testing.T, dirs interface {
	Remove(ctx context.Context, ref runtime.PodRef, podDir string) error
}) *lifecycle.Steps {
	t.Helper()
	steps, err := lifecycle.New(dirsComponent{dirs})
	require.NoError(t, err)
	return steps
}

func (b *handlerBench) steps(t *testing.T) *lifecycle.Steps { return stepsOf(t, b.dirs) }

func TestAdditionsOldestFirst(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{})
	young, old, static := makePod("young"), makePod("old"), makePod("static")
	young.CreationTimestamp = metav1.NewTime(time.Unix(200, 0))
	old.CreationTimestamp = metav1.NewTime(time.Unix(100, 0))
	b.HandlePodAdditions([]*v1.Pod{young, static, old})
	assert.Equal(t, []string{"create static", "create old", "create young"}, b.workers.take())
	assert.Len(t, b.pods.Pods(), 3)
}

func TestTheCheckpointHasWhatRunsHere(t *testing.T) {
	b := newHandler(t,
		syncloop.HandlerOptions{Admit: lifecycle.AdmitterFunc("test", func(req lifecycle.AdmitRequest) error {
			if req.Pod.Name == "big" {
				return lifecycle.Refuse("Full", "")
			}
			return nil
		})})
	web, big, mirror := makePod("web"), makePod("big"), makePod("mirror")
	mirror.Annotations = map[string]string{podspec.AnnotationConfigMirror: "hash"}
	all := []*v1.Pod{web, big, mirror}
	b.HandlePodAdditions(all)
	assert.Equal(t, []string{"keep uid-web", "drop uid-big"}, b.kept.take())
	b.HandlePodUpdates(all)
	assert.Equal(t, []string{"keep uid-web"}, b.kept.take())
	b.HandlePodReconcile(all)
	b.HandlePodSyncs(all)
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	assert.Equal(t, []string{"prune uid-big", "prune uid-gone"}, b.kept.take(), "a status is not kept")
	b.HandlePodRemoves(all)
	assert.Equal(t, []string{"drop uid-web", "drop uid-big"}, b.kept.take())
}

func TestMirrorPodsHaveNoWorker(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{})
	mirror := makePod("mirror")
	mirror.Annotations = map[string]string{podspec.AnnotationConfigMirror: "hash"}
	b.HandlePodAdditions([]*v1.Pod{mirror})
	b.HandlePodUpdates([]*v1.Pod{mirror})
	b.HandlePodSyncs([]*v1.Pod{mirror})
	b.HandlePodRemoves([]*v1.Pod{mirror})
	assert.Empty(t, b.workers.take())
}

func TestLifeOfAPod(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{})
	pod := []*v1.Pod{makePod("a")}
	b.HandlePodAdditions(pod)
	b.HandlePodUpdates(pod)
	b.HandlePodReconcile(pod)
	b.HandlePodSyncs(pod)
	b.HandlePodRemoves(pod)
	assert.Equal(t, []string{"create a", "change a", "sync a", "kill a"}, b.workers.take())
	assert.Empty(t, b.pods.Pods())
}

// The checkpoint has the results of probes, so that containers are not unready from the start
// of the next agent to its first probes.
func TestCheckpointHasReadiness(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{})
	kept := b.kept
	pod := makePod("a")
	b.HandlePodAdditions([]*v1.Pod{pod})
	started := true
	running := func(change func(*v1.ContainerStatus)) []*v1.Pod {
		c := v1.ContainerStatus{Name: "c", ContainerID: "fake://1", Started: &started}
		change(&c)
		return []*v1.Pod{testpod.With(pod, func(p *v1.Pod) { p.Status.ContainerStatuses = []v1.ContainerStatus{c} })}
	}
	kept.take()
	unready, ready := func(*v1.ContainerStatus) {}, func(c *v1.ContainerStatus) { c.Ready = true }
	for _, step := range []struct {
		change func(*v1.ContainerStatus)
		keeps  bool
	}{
		{unready, true}, {func(c *v1.ContainerStatus) { c.RestartCount = 1 }, false}, {ready, true}, {ready, false},
		{func(c *v1.ContainerStatus) { c.Ready, c.ContainerID = true, "fake://2" }, true}, {unready, true},
	} {
		b.HandlePodReconcile(running(step.change))
		assert.Equal(t, step.keeps, len(kept.take()) > 0)
	}
}

func TestARefusedPodFailsAndHasNoWorker(t *testing.T) {
	limits := syncloop.Limits{MaxPods: 1}
	b := newHandler(t, syncloop.HandlerOptions{Admit: limits})
	first, second := makePod("first"), makePod("second")
	b.HandlePodAdditions([]*v1.Pod{first, second})
	assert.Equal(t, []string{"create first"}, b.workers.take())
	assert.Equal(t, v1.PodFailed, b.status.m[second.UID].Phase)
	assert.Equal(t, "OutOfpods", b.status.m[second.UID].Reason)

	b.HandlePodUpdates([]*v1.Pod{second})
	b.HandlePodSyncs([]*v1.Pod{second})
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	b.HandlePodRemoves([]*v1.Pod{second})
	assert.Empty(t, b.workers.take())

	b.workers.states[first.UID] = podworkers.State{Phase: podworkers.PhaseTerminated}
	b.HandlePodAdditions([]*v1.Pod{makePod("third")})
	assert.Equal(t, []string{"create third"}, b.workers.take(), "a pod that has ended takes no place")
}

// A node for no pods, as a kubelet with --max-pods=0.
func TestANodeForNoPods(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{Admit: syncloop.Limits{MaxPods: -1}})
	pod := makePod("web")
	b.HandlePodAdditions([]*v1.Pod{pod})
	assert.Empty(t, b.workers.take())
	assert.Equal(t, "OutOfpods", b.status.m[pod.UID].Reason)
	assert.Contains(t, b.status.m[pod.UID].Message, "requested: 1, used: 0, capacity: 0")
}

// Which pods hold resources of the node, as in kubelet's isPodInactive.
func TestActivePods(t *testing.T) {
	stopping := podworkers.State{Phase: podworkers.PhaseTerminating, HasConfig: true, TerminatingAt: time.Now()}
	ended := podworkers.State{Phase: podworkers.PhaseTerminated, HasConfig: true, TerminatingAt: time.Now()}
	for _, tc := range []struct {
		name         string
		given, known v1.PodPhase
		worker       podworkers.State
		active       bool
	}{
		{name: "runs", known: v1.PodRunning, active: true},
		{name: "arrived Succeeded", given: v1.PodSucceeded},
		{name: "arrived Failed", given: v1.PodFailed},
		{name: "has failed, its worker does not know yet", known: v1.PodFailed},
		{name: "has failed and is stopping", known: v1.PodFailed, worker: stopping, active: true},
		{name: "arrived Failed and is stopping", given: v1.PodFailed, worker: stopping, active: true},
		{name: "is stopping", known: v1.PodRunning, worker: stopping, active: true},
		{name: "has stopped", known: v1.PodRunning, worker: ended},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var active []*v1.Pod
			b := newHandler(t,
				syncloop.HandlerOptions{Admit: lifecycle.AdmitterFunc("test", func(req lifecycle.AdmitRequest) error {
					active = req.Active
					return nil
				})})
			pod := makePod("pod")
			pod.Status.Phase = tc.given
			b.HandlePodAdditions([]*v1.Pod{pod})
			b.status.m[pod.UID] = v1.PodStatus{Phase: tc.known}
			if tc.worker.Phase != 0 {
				b.workers.states[pod.UID] = tc.worker
			}
			b.HandlePodAdditions([]*v1.Pod{makePod("new")})
			assert.Equal(t, tc.active, len(active) == 1)
		})
	}
}

func TestAPodThatArrivesEndedIsNotAdmitted(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{Admit: syncloop.Limits{MaxPods: 1}})
	done, stopping := makePod("done"), makePod("stopping")
	done.Status.Phase = v1.PodSucceeded
	b.workers.states[stopping.UID] = podworkers.State{Phase: podworkers.PhaseTerminating, HasConfig: true,
		TerminatingAt: time.Now()}
	b.HandlePodAdditions([]*v1.Pod{makePod("first"), done})
	assert.Equal(t, []string{"create first", "create done"}, b.workers.take(), "though there is no room for it")
	assert.Empty(t, b.status.m, "it is not refused")

	b = newHandler(t, syncloop.HandlerOptions{Admit: syncloop.Limits{MaxPods: 1}})
	b.workers.states[stopping.UID] = podworkers.State{Phase: podworkers.PhaseTerminating, HasConfig: true,
		TerminatingAt: time.Now()}
	b.HandlePodAdditions([]*v1.Pod{done, stopping, makePod("first")})
	assert.Equal(t, []string{"create done", "create stopping"}, b.workers.take(),
		"one that is stopping takes its place")
	assert.Equal(t, "OutOfpods", b.status.m["uid-first"].Reason)
}

func TestCleanupStopsOrphansAndCollectsRemains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHandler(t, syncloop.HandlerOptions{})
		wanted := makePod("wanted")
		b.HandlePodAdditions([]*v1.Pod{wanted})
		b.workers.take()
		running := []runtime.Container{{Name: "c", State: runtime.ContainerRunning}}
		b.runtime.pods = []*runtime.Pod{
			{PodRef: runtime.RefOf(wanted), Containers: running},
			{PodRef: runtime.PodRef{UID: "o", Name: "orphan"}, Containers: running},
			{PodRef: runtime.PodRef{UID: "d", Name: "dead"}, Containers: []runtime.Container{{Name: "c", State: runtime.ContainerExited}}},
		}
		b.status.m["gone"] = v1.PodStatus{}
		for _, d := range []string{string(wanted.UID), "o", "d"} {
			require.NoError(t, os.Mkdir(filepath.Join(b.podsDir, d), 0o750))
		}
		require.NoError(t, b.HandlePodCleanups(t.Context()))
		synctest.Wait() // for removals
		assert.Equal(t, []string{"kill orphan orphan"}, b.workers.take())
		assert.Equal(t, []string{"remove d"}, b.dirs.take(), "not while the orphan runs")
		assert.Equal(t, 1, b.gone)
		assert.NotContains(t, b.status.m, types.UID("gone"))
	})
}

func TestCleanupAsksTheRuntimeOnlyWhenSomethingHintsAtIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHandler(t, syncloop.HandlerOptions{})
		pod := makePod("a")
		b.HandlePodAdditions([]*v1.Pod{pod})
		cleanup := func() (lists int) {
			require.NoError(t, b.HandlePodCleanups(t.Context()))
			synctest.Wait() // for removals
			return len(b.runtime.take())
		}
		started := []pleg.Event{{Type: pleg.ContainerStarted}}
		assert.Equal(t, 1, cleanup(), "after the start")
		assert.Equal(t, 0, cleanup(), "all is well")
		time.Sleep(time.Minute)
		assert.Equal(t, 1, cleanup(), "once a minute while there are no events")
		b.Observe(pleg.PodEvents{Pod: runtime.RefOf(pod), Events: started})
		assert.Equal(t, 0, cleanup(), "an event of a pod that is wanted")
		removed := []pleg.Event{{Type: pleg.ContainerRemoved}, {Type: pleg.SandboxRemoved}}
		b.Observe(pleg.PodEvents{Pod: runtime.PodRef{UID: "stranger"}, Events: removed})
		assert.Equal(t, 0, cleanup(), "a removal")
		b.Observe(pleg.PodEvents{Pod: runtime.PodRef{UID: "stranger"}, Events: started})
		assert.Equal(t, 1, cleanup(), "an event of a pod that is not")
		b.HandlePodRemoves([]*v1.Pod{pod})
		assert.Equal(t, 0, cleanup(), "it still ends")
		b.workers.states[pod.UID] = podworkers.State{Phase: podworkers.PhaseTerminated}
		require.NoError(t, os.Mkdir(filepath.Join(b.podsDir, "a"), 0o750))
		assert.Equal(t, 0, cleanup(), "it was forgotten; what it has left is known")
		assert.Equal(t, 1, b.gone)
		assert.Equal(t, []string{"remove a"}, b.dirs.take())
		assert.Equal(t, 0, cleanup())
		time.Sleep(time.Minute)
		assert.Equal(t, 0, cleanup(), "events would report an orphan")
		time.Sleep(4 * time.Minute)
		assert.Equal(t, 1, cleanup(), "every 5 minutes in any case")
		b.runtime.err = errors.New("busy")
		b.Observe(pleg.PodEvents{Pod: runtime.PodRef{UID: "stranger"}, Events: started})
		require.ErrorContains(t, b.HandlePodCleanups(t.Context()), "busy")
		b.runtime.err = nil
		b.runtime.take()
		assert.Equal(t, 1, cleanup(), "a failure is made up for")
	})
}

func TestCleanupStartsAnewWhatHasEndedButIsWanted(t *testing.T) {
	b := newHandler(t,
		syncloop.HandlerOptions{Admit: lifecycle.AdmitterFunc("test", func(req lifecycle.AdmitRequest) error {
			if req.Pod.Name == "b" {
				return lifecycle.Refuse("Full", "")
			}
			return nil
		})})
	b.pods.Set(makePod("a"))
	b.pods.Set(makePod("b"))
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	assert.Equal(t, []string{"create a"}, b.workers.take())
	assert.Equal(t, "Full", b.status.m["uid-b"].Reason, "what the pod had may belong to another one since")
}

// Until the runtime was listed, an orphan may run which no worker knows. What it has is not free.
func TestOrphansHaveWorkersBeforePodsCountAsGone(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{})
	b.runtime.err = errors.New("away")
	require.Error(t, b.HandlePodCleanups(t.Context()))
	assert.False(t, b.workers.synced)
	b.runtime.err, b.runtime.pods = nil, []*runtime.Pod{runs("orphan", "orphan", runtime.ContainerRunning)}
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	assert.Equal(t, []string{"kill orphan orphan"}, b.workers.take())
	assert.True(t, b.workers.synced)
}

func TestAdmit(t *testing.T) {
	with := func(name string, change func(*v1.Pod)) *v1.Pod {
		p := makePod(name)
		change(p)
		return p
	}
	asks := func(name, cpu, mem string) *v1.Pod {
		return with(name, func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu),
				v1.ResourceMemory: resource.MustParse(mem)}
		})
	}
	port := func(name, ip string, port int32, proto v1.Protocol) *v1.Pod {
		return with(name, func(p *v1.Pod) {
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: port, HostIP: ip, Protocol: proto}}
		})
	}
	node := syncloop.Limits{MaxPods: 3, Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"),
		v1.ResourceMemory: resource.MustParse("1Gi")}}
	for _, tc := range []struct {
		name   string
		limits syncloop.Limits
		pod    *v1.Pod
		active []*v1.Pod
		reason string
	}{
		{"no limits", syncloop.Limits{}, asks("a", "99", "99Gi"), nil, ""},
		{"room for one more", node, makePod("a"), []*v1.Pod{makePod("b"), makePod("c")}, ""},
		{"full", node, makePod("a"), []*v1.Pod{makePod("b"), makePod("c"), makePod("d")}, "OutOfpods"},
		{"fits exactly", node, asks("a", "500m", "512Mi"), []*v1.Pod{asks("b", "1500m", "512Mi")}, ""},
		{"too little CPU", node, asks("a", "501m", "1Mi"), []*v1.Pod{asks("b", "1500m", "1Mi")}, "OutOfcpu"},
		{"too little memory", node, asks("a", "1m", "1Gi"), []*v1.Pod{asks("b", "1m", "1Mi")}, "OutOfmemory"},
		{"asks for nothing on a full node", node, makePod("a"), []*v1.Pod{asks("b", "2", "1Gi")}, ""},
		{"same port", node, port("a", "", 80, v1.ProtocolTCP), []*v1.Pod{port("b", "", 80, "")}, "NodePorts"},
		{"other protocol", node, port("a", "", 80, v1.ProtocolUDP), []*v1.Pod{port("b", "", 80, v1.ProtocolTCP)}, ""},
		{"other address", node, port("a", "10.0.0.1", 80, ""), []*v1.Pod{port("b", "10.0.0.2", 80, "")}, ""},
		{"this operating system", node, with("a", func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.OSName(goruntime.GOOS)} }), nil, ""},
		{"another operating system", node, with("a", func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: "plan9"} }), nil, "PodOSNotSupported"},
		{"any address", node, port("a", "10.0.0.1", 80, ""), []*v1.Pod{port("b", "0.0.0.0", 80, "")}, "NodePorts"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tc.limits.Admit(lifecycle.AdmitRequest{Pod: tc.pod, Active: tc.active})
			if tc.reason == "" {
				assert.NoError(t, err)
				return
			}
			var refusal *runtime.TerminalError
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, tc.reason, refusal.Reason, refusal.Message)
		})
	}
	// The message has kubelet's units: thousandths of a CPU.
	_, err := node.Admit(lifecycle.AdmitRequest{Pod: asks("a", "501m", "1Mi"),
		Active: []*v1.Pod{asks("b", "1500m", "1Mi")}})
	assert.ErrorContains(t, err, "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000")
}

// Admitters of an embedder stand beside the limits of the node.
func ExampleChain() {
	team := lifecycle.AdmitterFunc("test", func(req lifecycle.AdmitRequest) error {
		if req.Pod.Labels["team"] == "" {
			return lifecycle.Refuse("NoTeam", "pods on this node need a label team")
		}
		return nil
	})
	admit := lifecycle.Chain(syncloop.Limits{MaxPods: 1}, team)

	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	_, err := admit.Admit(lifecycle.AdmitRequest{Pod: pod})
	fmt.Println(err)
	_, err = admit.Admit(lifecycle.AdmitRequest{Pod: pod, Active: []*v1.Pod{{}}})
	fmt.Println(err)
	// Output:
	// NoTeam: pods on this node need a label team
	// OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1
}
