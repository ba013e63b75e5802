package syncloop_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// runs is a pod as the runtime lists it, with a container in the state.
func runs(uid types.UID, name string, state runtime.ContainerState) *runtime.Pod {
	return &runtime.Pod{
		PodRef:     runtime.PodRef{UID: uid, Namespace: "ns", Name: name},
		Containers: []runtime.Container{{Name: "c", State: state}},
	}
}

func TestWhatAnEarlierAgentRanUnderTheNameEndsFirst(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before *runtime.Pod
		want   []string
	}{
		{"another UID of the name", runs("old", "web", runtime.ContainerRunning), []string{"kill orphan web", "create web"}},
		{"the same pod is adopted", runs("uid-web", "web", runtime.ContainerRunning), []string{"create web"}},
		{"the same UID under another name", runs("uid-web", "was", runtime.ContainerRunning), []string{"kill orphan was", "create web"}},
		{"another pod, which a later source may want", runs("old", "db", runtime.ContainerRunning), []string{"create web"}},
		{"what has ended is not in the way", runs("old", "web", runtime.ContainerExited), []string{"create web"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newHandler(t, syncloop.HandlerOptions{})
			b.runtime.pods = []*runtime.Pod{tc.before}
			require.NoError(t, b.Prepare(t.Context()))
			b.HandlePodAdditions([]*v1.Pod{makePod("web")})
			assert.Equal(t, tc.want, b.workers.take())
		})
	}
}

func TestAPredecessorIsGivenToAWorkerOnce(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{})
	b.runtime.pods = []*runtime.Pod{runs("old", "web", runtime.ContainerRunning)}
	require.NoError(t, b.Prepare(t.Context()))
	b.HandlePodAdditions([]*v1.Pod{makePod("web")})
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	assert.Equal(t, []string{"kill orphan web", "create web"}, b.workers.take())

	// After the first sweep the workers know whatever runs.
	delete(b.workers.states, "old")
	again := makePod("web")
	again.UID = "third"
	b.HandlePodAdditions([]*v1.Pod{again})
	assert.Equal(t, []string{"create web"}, b.workers.take())
}

// preparing is a handler that has to look around first.
type preparing struct {
	recorder
	failures atomic.Int32
}

func (p *preparing) Prepare(context.Context) error {
	p.add("prepare")
	if p.failures.Add(-1) >= 0 {
		return errors.New("no list")
	}
	return nil
}

func TestNothingIsHandledBeforeTheHandlerIsPrepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &preparing{}
		h.failures.Store(2)
		cfg := &config{changes: make(chan podconfig.Change)}
		l, err := syncloop.New(syncloop.Deps{Handler: h, Config: cfg, PLEG: &events{}, Runtime: &checker{},
			Pods: newPodSet()}, syncloop.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		cfg.changes <- podconfig.Change{Op: podconfig.Add, Pods: []*v1.Pod{makePod("a")}}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"prepare", "prepare", "prepare", "add [a]"}, h.take())
		cancel()
		require.NoError(t, <-done)
	})
}

func TestSyncedOnlyWhenAllIsHandedOver(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		time.Sleep(5 * time.Second)
		assert.False(t, b.Synced())
		b.config.see()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.True(t, b.Synced())
	})
}

func TestASuccessorTakesOverWhatItsPredecessorHolds(t *testing.T) {
	admit := syncloop.Limits{MaxPods: 2}
	withPort := func(name string, uid types.UID) *v1.Pod {
		pod := makePod(name)
		pod.UID = uid
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
		return pod
	}
	b := newHandler(t, syncloop.HandlerOptions{Admit: admit})
	old, other := withPort("web", "u1"), makePod("other")
	b.HandlePodAdditions([]*v1.Pod{old, other})
	b.workers.take()

	// An edited manifest is another pod, and is added before the old one is removed.
	b.HandlePodAdditions([]*v1.Pod{withPort("web", "u2")})
	b.HandlePodRemoves([]*v1.Pod{old})
	assert.Equal(t, []string{"create web", "kill web"}, b.workers.take())

	b.HandlePodRemoves([]*v1.Pod{other})
	b.HandlePodAdditions([]*v1.Pod{withPort("rival", "u3")})
	assert.Equal(t, "NodePorts", b.status.m["u3"].Reason)
}

func TestARefusedPodThatRunsIsStopped(t *testing.T) {
	refuse := lifecycle.AdmitterFunc("test", func(lifecycle.AdmitRequest) error { return lifecycle.Refuse("Full", "") })
	b := newHandler(t, syncloop.HandlerOptions{Admit: refuse})
	pod := makePod("web")
	b.runtime.pods = []*runtime.Pod{runs(pod.UID, "web", runtime.ContainerRunning)}
	require.NoError(t, os.Mkdir(filepath.Join(b.podsDir, string(pod.UID)), 0o750))
	require.NoError(t, b.Prepare(t.Context()))
	b.HandlePodAdditions([]*v1.Pod{pod})
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	assert.Equal(t, []string{"kill web"}, b.workers.take(), "by its worker, which reports how it ends")
	assert.Empty(t, b.status.m, "it has not ended yet")
	assert.Empty(t, b.dirs.take(), "it is still desired")
}

// taker is a component that gives pods something, and takes it back.
type taker struct{ script }

func (*taker) Name() string { return "taker" }
func (c *taker) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	c.add("give %s", req.Pod.Name)
	return lifecycle.AdmitResponse{}, nil
}
func (c *taker) Refused(pod *v1.Pod) { c.add("take %s", pod.Name) }

func TestComponentsTakeBackWhatARefusedPodWasGiven(t *testing.T) {
	c, b := &taker{}, newHandler(t, syncloop.HandlerOptions{})
	steps, err := lifecycle.New(c,
		lifecycle.AdmitterFunc("test", func(lifecycle.AdmitRequest) error { return lifecycle.Refuse("Full", "") }))
	require.NoError(t, err)
	b.PodHandler, err = syncloop.NewHandler(syncloop.HandlerDeps{Pods: b.pods, Workers: b.workers, Status: b.status,
		Runtime: b.runtime, Steps: steps},
		syncloop.HandlerOptions{PodsDir: b.podsDir})
	require.NoError(t, err)
	running := makePod("running")
	b.runtime.pods = []*runtime.Pod{runs(running.UID, "running", runtime.ContainerRunning)}
	require.NoError(t, b.Prepare(t.Context()))
	b.HandlePodAdditions([]*v1.Pod{makePod("new"), running})
	assert.Equal(t, []string{"give new", "take new", "give running"}, c.take(), "what runs has ended first")
}

func TestTheCleanupAfterAnOrphansEndRemovesItsDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHandler(t, syncloop.HandlerOptions{})
		b.runtime.pods = []*runtime.Pod{runs("o", "orphan", runtime.ContainerRunning)}
		require.NoError(t, os.Mkdir(filepath.Join(b.podsDir, "o"), 0o750))
		require.NoError(t, b.HandlePodCleanups(t.Context()))
		assert.Empty(t, b.dirs.take())

		b.runtime.pods[0].Containers[0].State = runtime.ContainerExited
		delete(b.workers.states, "o") // it ended between two cleanups and was forgotten at once
		require.NoError(t, b.HandlePodCleanups(t.Context()))
		synctest.Wait()
		assert.Equal(t, []string{"remove o"}, b.dirs.take())
		assert.Equal(t, 1, b.gone)
	})
}

func TestAUIDThatIsNoNameOfADirectoryIsRefused(t *testing.T) {
	for _, uid := range []types.UID{"../../etc", "a/b", "..", ".", "", "a\x00b", types.UID(strings.Repeat("x", 300))} {
		b := newHandler(t, syncloop.HandlerOptions{})
		pod := makePod("web")
		pod.UID = uid
		b.HandlePodAdditions([]*v1.Pod{pod})
		b.HandlePodRemoves([]*v1.Pod{pod})
		assert.Empty(t, b.workers.take(), "%q", uid)
		assert.Equal(t, "InvalidUID", b.status.m[uid].Reason)
	}
}

func TestAPodWithoutContainersIsRefused(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{})
	pod := makePod("web")
	pod.Spec.Containers = nil
	b.HandlePodAdditions([]*v1.Pod{pod})
	assert.Empty(t, b.workers.take())
	assert.Equal(t, v1.PodFailed, b.status.m[pod.UID].Phase)
	assert.Equal(t, "FailedValidation", b.status.m[pod.UID].Reason)
	assert.Equal(t, "Pod was rejected: spec.containers: Required value", b.status.m[pod.UID].Message)
}

func TestPodWithTooManyContainers(t *testing.T) {
	for n, admitted := range map[int]bool{1000: true, 1001: false} {
		b := newHandler(t, syncloop.HandlerOptions{})
		pod := makePod("web")
		pod.Spec.InitContainers = make([]v1.Container, n/2)
		pod.Spec.Containers = make([]v1.Container, n-n/2)
		b.HandlePodAdditions([]*v1.Pod{pod})
		if admitted {
			assert.NotEmpty(t, b.workers.take())
			continue
		}
		assert.Empty(t, b.workers.take())
		assert.Equal(t, "Pod was rejected: spec.containers: Too many: 1001: must have at most 1000 items, with init "+
			"and ephemeral containers", b.status.m[pod.UID].Message)
	}
}

// Ephemeral containers are added to a pod that runs. A pod that has run with too many is not refused by the
// next agent.
func TestPodWithTooManyEphemeralContainers(t *testing.T) {
	with := func(main, ephemeral int) *v1.Pod {
		pod := makePod("web")
		pod.Spec.Containers = slices.Repeat(pod.Spec.Containers[:1], main)
		for i := range ephemeral {
			pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers,
				v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: fmt.Sprint(i)}})
		}
		return pod
	}
	var events []string
	b := newHandler(t,
		syncloop.HandlerOptions{Observer: runtime.Observer{NonBlocking: true, Event: func(e runtime.Event) {
			if e.Reason == "TooManyContainers" {
				events = append(events, e.Message)
			}
		}}})
	count := func() (main, ephemeral int) {
		spec := b.pods.of("uid-web").Spec
		return len(spec.Containers), len(spec.EphemeralContainers)
	}
	b.HandlePodAdditions([]*v1.Pod{with(10, 990)})
	assert.Empty(t, events)
	for _, change := range []func([]*v1.Pod){b.HandlePodUpdates, b.HandlePodReconcile} {
		change([]*v1.Pod{with(10, 5000)})
		main, ephemeral := count()
		assert.Equal(t, []int{10, 990}, []int{main, ephemeral})
	}
	assert.Equal(t,
		[]string{"The last 4010 ephemeral containers are not started: a pod must have at most 1000 containers"}, events)
	for _, change := range []func([]*v1.Pod){b.HandlePodUpdates, b.HandlePodReconcile} {
		change([]*v1.Pod{with(2000, 0)}) // of a source that does not validate it
		main, ephemeral := count()
		assert.Equal(t, []int{10, 990}, []int{main, ephemeral})
	}
	assert.Contains(t, events, "The update is not applied: a pod must have at most 1000 containers")

	next := newHandler(t, syncloop.HandlerOptions{})
	next.HandlePodAdditions([]*v1.Pod{with(10, 5000)})
	assert.NotEmpty(t, next.workers.take(), "it is admitted")
	assert.Len(t, next.pods.of("uid-web").Spec.EphemeralContainers, 990)
}

func TestPortsOfInitContainersDoNotConflictButThoseOfSidecarsDo(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	with := func(policy *v1.ContainerRestartPolicy) *v1.Pod {
		pod := makePod("a")
		pod.Spec.InitContainers = []v1.Container{{Name: "i", RestartPolicy: policy,
			Ports: []v1.ContainerPort{{HostPort: 80}}}}
		return pod
	}
	admit := func(pod, active *v1.Pod) error {
		_, err := syncloop.Limits{}.Admit(lifecycle.AdmitRequest{Pod: pod, Active: []*v1.Pod{active}})
		return err
	}
	assert.NoError(t, admit(with(nil), with(&always)))
	assert.Error(t, admit(with(&always), with(&always)))
}
