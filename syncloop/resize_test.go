package syncloop_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// sized returns a pod of the API server in this generation that requests CPU.
func sized(name string, generation int64, cpu string) *v1.Pod {
	return testpod.With(makePod(name), func(pod *v1.Pod) {
		pod.Generation, pod.Annotations = generation, map[string]string{
			podspec.AnnotationConfigSource: podspec.SourceAPI}
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	})
}

func cpuOf(pod *v1.Pod) string { return pod.Spec.Containers[0].Resources.Requests.Cpu().String() }

func TestAResizeNeedsFreeResources(t *testing.T) {
	var events []string
	b := newHandler(t, syncloop.HandlerOptions{
		Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}},
		Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { events = append(events, e.Reason) }},
	})
	web, other := sized("web", 1, "500m"), sized("other", 1, "1")
	b.HandlePodAdditions([]*v1.Pod{web, other})
	held := func() string { return cpuOf(b.pods.of(web.UID)) }

	b.HandlePodUpdates([]*v1.Pod{sized("web", 2, "1")})
	assert.Equal(t, "1", held(), "there is room")
	_, pending := b.ResizePending(web.UID)
	assert.False(t, pending)

	b.HandlePodUpdates([]*v1.Pod{sized("web", 3, "1500m")})
	assert.Equal(t, "1", held(), "there is none")
	c, pending := b.ResizePending(web.UID)
	require.True(t, pending)
	assert.Equal(t, v1.PodCondition{
		Type: v1.PodResizePending, Status: v1.ConditionTrue, ObservedGeneration: 3, Reason: v1.PodReasonDeferred,
		Message: "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000",
	}, c)

	// Its status, and changes of other fields, take nothing away from what it holds.
	b.HandlePodReconcile([]*v1.Pod{sized("web", 3, "1500m")})
	assert.Equal(t, "1", held())
	labelled := testpod.With(sized("web", 3, "1500m"), func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} })
	b.HandlePodUpdates([]*v1.Pod{labelled})
	assert.Equal(t, "1", held())
	assert.Equal(t, "b", b.pods.of(web.UID).Labels["a"])
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	assert.Equal(t, "1", held())
	assert.Equal(t, []string{"ResizeStarted", "ResizeDeferred"}, events)
	b.workers.take()

	// The other pod goes.
	b.HandlePodRemoves([]*v1.Pod{other})
	b.workers.take()
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	assert.Equal(t, "1500m", held())
	assert.Contains(t, b.workers.take(), "change web")
	_, pending = b.ResizePending(web.UID)
	assert.False(t, pending)
	assert.Equal(t, []string{"ResizeStarted", "ResizeDeferred", "ResizeStarted"}, events)
}

func TestAResizeThatIsTakenBack(t *testing.T) {
	b := newHandler(t,
		syncloop.HandlerOptions{
			Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}})
	b.HandlePodAdditions([]*v1.Pod{sized("web", 1, "500m")})
	b.HandlePodUpdates([]*v1.Pod{sized("web", 2, "2")})
	_, pending := b.ResizePending("uid-web")
	require.True(t, pending)
	b.HandlePodUpdates([]*v1.Pod{sized("web", 3, "500m")})
	_, pending = b.ResizePending("uid-web")
	assert.False(t, pending)

	b.HandlePodUpdates([]*v1.Pod{sized("web", 4, "2")})
	b.HandlePodRemoves([]*v1.Pod{sized("web", 4, "2")})
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	_, pending = b.ResizePending("uid-web")
	assert.False(t, pending, "nothing is kept of a pod that is gone")
}

// whole returns a pod of the API server that requests CPU as a whole, and has an overhead.
func whole(generation int64, request, limit string) *v1.Pod {
	return testpod.With(sized("web", generation, "100m"), func(p *v1.Pod) {
		r := inCPU(request, limit)
		p.Spec.Resources, p.Spec.Overhead = &r, v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}
	})
}

// The resources of a pod as a whole are resized like those of its containers (KEP-5419).
func TestTheResourcesOfThePodAsAWhole(t *testing.T) {
	limits := syncloop.HandlerOptions{
		Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}}
	b := newHandler(t, limits)
	held := func(b *handlerBench) string {
		r := b.pods.of("uid-web").Spec.Resources
		return r.Requests.Cpu().String() + " " + r.Limits.Cpu().String()
	}
	b.HandlePodAdditions([]*v1.Pod{whole(1, "500m", "1")})
	b.HandlePodUpdates([]*v1.Pod{whole(2, "1", "3")})
	assert.Equal(t, "1 3", held(b))
	_, pending := b.ResizePending("uid-web")
	assert.False(t, pending)
	b.HandlePodUpdates([]*v1.Pod{whole(3, "1800m", "3")})
	assert.Equal(t, "1 3", held(b), "there is no room for its overhead")
	c, _ := b.ResizePending("uid-web")
	assert.Equal(t, v1.PodReasonDeferred, c.Reason)
	next := newHandler(t, limits)
	next.HandlePodAdditions([]*v1.Pod{b.kept.last})
	assert.Equal(t, "1 3", held(next), "the checkpoint has what is allocated")

	// Another agent reads it in the status, which has the overhead, too.
	next = newHandler(t, limits)
	next.HandlePodAdditions([]*v1.Pod{testpod.With(whole(3, "1800m", "4"), func(p *v1.Pod) {
		r := inCPU("1250m", "3250m")
		p.Status.AllocatedResources, p.Status.Resources = r.Requests, &r
		p.Status.ObservedGeneration, p.Status.Conditions = 3, []v1.PodCondition{c}
	})})
	assert.Equal(t, "1 3", held(next))
	_, pending = next.ResizePending("uid-web")
	assert.True(t, pending)
	next.HandlePodUpdates([]*v1.Pod{whole(4, "1500m", "2")})
	assert.Equal(t, "1500m 2", held(next))
}

// A component refuses a resize for now, or as infeasible.
func TestAResizeThatAComponentRefuses(t *testing.T) {
	for reason, want := range map[string]string{"OutOfcpu": v1.PodReasonDeferred,
		v1.PodReasonInfeasible: v1.PodReasonInfeasible} {
		b := newHandler(t,
			syncloop.HandlerOptions{Admit: lifecycle.AdmitterFunc("no resizes", func(req lifecycle.AdmitRequest) error {
				if req.Held != nil {
					return lifecycle.Refuse(reason, "no resizes")
				}
				return nil
			})})
		b.HandlePodAdditions([]*v1.Pod{sized("web", 1, "1")})
		b.HandlePodUpdates([]*v1.Pod{sized("web", 2, "2")})
		c, _ := b.ResizePending("uid-web")
		assert.Equal(t, []string{want, "no resizes"}, []string{c.Reason, c.Message})
		assert.Equal(t, "1", cpuOf(b.pods.of("uid-web")))
	}
}

// An agent that starts takes what a pod holds from its status, so that a pod that runs is not
// refused for a resize that was requested meanwhile.
func TestAResizeWhileNoAgentRan(t *testing.T) {
	b := newHandler(t,
		syncloop.HandlerOptions{
			Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}})
	running := func(s *v1.PodStatus) { s.Phase = v1.PodRunning }
	b.HandlePodAdditions([]*v1.Pod{heldPod("big", "3", "1", running), heldPod("web", "1", "500m", running)})
	assert.Equal(t, "1", cpuOf(b.pods.of("uid-big")))
	assert.Equal(t, "1", cpuOf(b.pods.of("uid-web")), "there is room")
	assert.Equal(t, []string{"create big", "create web", "change big", "change web"}, b.workers.take())
	_, pending := b.ResizePending("uid-big")
	assert.True(t, pending)
}

// An admitter sees which pods are resized, and what they hold.
func TestAdmissionOfAResize(t *testing.T) {
	var requests []string
	b := newHandler(t,
		syncloop.HandlerOptions{Admit: lifecycle.AdmitterFunc("test", func(req lifecycle.AdmitRequest) error {
			held := "nothing"
			if req.Held != nil {
				held = cpuOf(req.Held)
			}
			requests = append(requests, cpuOf(req.Pod)+" holds "+held)
			if cpuOf(req.Pod) == "2" {
				return errors.New("no")
			}
			return nil
		})})
	b.HandlePodAdditions([]*v1.Pod{sized("web", 1, "500m")})
	b.HandlePodUpdates([]*v1.Pod{sized("web", 2, "1")})
	b.HandlePodUpdates([]*v1.Pod{sized("web", 3, "2")})
	b.HandlePodUpdates([]*v1.Pod{testpod.With(sized("web", 4, "1"),
		func(p *v1.Pod) { p.Spec.Containers[0].Image = "new" })})
	assert.Equal(t, []string{"500m holds nothing", "1 holds 500m", "2 holds 1"}, requests)
}

// The checkpoint has what a pod holds, whatever the older status of its source says.
func TestTheCheckpointHasWhatIsAllocated(t *testing.T) {
	limits := syncloop.HandlerOptions{
		Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}}
	older := func(s *v1.PodStatus) {
		s.ObservedGeneration = 1
		s.Conditions = []v1.PodCondition{{Type: v1.PodReady}, {Type: v1.PodResizePending, Status: v1.ConditionTrue}}
	}
	for wanted, held := range map[string]string{"1": "1", "3": "500m"} {
		b := newHandler(t, limits)
		b.HandlePodAdditions([]*v1.Pod{sized("web", 1, "500m")})
		b.HandlePodUpdates([]*v1.Pod{heldPod("web", wanted, "500m", older)})
		next := newHandler(t, limits)
		next.HandlePodAdditions([]*v1.Pod{b.kept.last})
		assert.Equal(t, held, cpuOf(next.pods.of("uid-web")))
		_, pending := next.ResizePending("uid-web")
		assert.False(t, pending, "nothing but what it holds is known")
		assert.Equal(t, []string{"create web"}, next.workers.take())
		assert.Len(t, b.pods.of("uid-web").Status.Conditions, 2, "the pod is not changed")
	}
}

// inCPU returns resources with this request and this limit of CPU.
func inCPU(request, limit string) v1.ResourceRequirements {
	return v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(request)},
		Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse(limit)},
	}
}

// The status of an earlier agent says what a container holds, whatever it requests now.
func TestResourcesInTheStatus(t *testing.T) {
	running, waiting := v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	held, wanted, none := inCPU("500m", "1"), inCPU("3", "4"), v1.ResourceRequirements{}
	for name, tc := range map[string]struct {
		wanted, want v1.ResourceRequirements
		status       v1.ContainerStatus
		observed     int64
	}{
		"it runs":                    {wanted, held, v1.ContainerStatus{State: running, Resources: &held, AllocatedResources: held.Requests}, 1},
		"it waits":                   {wanted, held, v1.ContainerStatus{State: waiting, Resources: &held, AllocatedResources: held.Requests}, 1},
		"it holds nothing":           {wanted, none, v1.ContainerStatus{State: running, Resources: &none}, 1},
		"a limit of the whole pod":   {v1.ResourceRequirements{Requests: held.Requests}, v1.ResourceRequirements{Requests: held.Requests}, v1.ContainerStatus{State: running, Resources: &held, AllocatedResources: held.Requests}, 1},
		"an agent without resources": {wanted, wanted, v1.ContainerStatus{State: running}, 1},
		"not yet in force":           {wanted, wanted, v1.ContainerStatus{State: running, Resources: &held, AllocatedResources: wanted.Requests}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHandler(t,
				syncloop.HandlerOptions{
					Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}})
			pod := sized("web", 2, "1")
			pod.Spec.Containers[0].Resources = tc.wanted
			tc.status.Name = pod.Spec.Containers[0].Name
			pod.Status.ObservedGeneration, pod.Status.ContainerStatuses = tc.observed, []v1.ContainerStatus{tc.status}
			b.HandlePodAdditions([]*v1.Pod{pod})
			got := b.pods.of(pod.UID).Spec.Containers[0].Resources
			assert.True(t, equality.Semantic.DeepEqual(tc.want, got), "%+v", got)
			_, pending := b.ResizePending(pod.UID)
			assert.Equal(t, !equality.Semantic.DeepEqual(tc.wanted, tc.want), pending)
		})
	}
}

// heldPod returns a pod of an earlier agent that requests CPU and holds another amount of it.
func heldPod(name, wanted, held string, change func(*v1.PodStatus)) *v1.Pod {
	return testpod.With(sized(name, 2, wanted), func(p *v1.Pod) {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{
			Name: "main", ContainerID: "fake://1", AllocatedResources: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse(held)},
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}, Resources: &v1.ResourceRequirements{},
		}}
		change(&p.Status)
	})
}

// A restart of the agent repeats no event. A pod that has ended is not resized.
func TestEventsAfterARestart(t *testing.T) {
	var events []string
	b := newHandler(t, syncloop.HandlerOptions{
		Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}},
		Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { events = append(events, e.Pod.Name+" "+e.Reason) }},
	})
	pending := func(generation int64) func(*v1.PodStatus) {
		return func(s *v1.PodStatus) {
			s.ObservedGeneration = 2
			s.Conditions = []v1.PodCondition{{Type: v1.PodReady}, {Type: v1.PodResizePending, Status: v1.ConditionTrue,
				Reason: v1.PodReasonDeferred, ObservedGeneration: generation}}
		}
	}
	b.HandlePodAdditions([]*v1.Pod{
		heldPod("known", "3", "500m", pending(2)),
		heldPod("newer", "3", "500m", pending(1)),
		heldPod("ended", "1", "500m", func(s *v1.PodStatus) { s.Phase = v1.PodSucceeded }),
	})
	assert.Equal(t, []string{"newer ResizeDeferred"}, events)
}

// A deferred resize is reported once, also if what is used changes meanwhile; the condition
// says what is used now.
func TestADeferredResizeIsReportedOnce(t *testing.T) {
	var events []string
	b := newHandler(t, syncloop.HandlerOptions{
		Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}},
		Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { events = append(events, e.Reason) }},
	})
	first, second := sized("first", 1, "500m"), sized("second", 1, "500m")
	b.HandlePodAdditions([]*v1.Pod{sized("web", 1, "500m"), first, second})
	b.HandlePodUpdates([]*v1.Pod{sized("web", 2, "1900m")})
	b.workers.take()
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	assert.NotContains(t, b.workers.take(), "sync web", "nothing has changed")

	b.HandlePodRemoves([]*v1.Pod{first})
	b.workers.take()
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	c, _ := b.ResizePending("uid-web")
	assert.Contains(t, c.Message, "used: 500,")
	assert.Contains(t, b.workers.take(), "sync web")
	assert.Equal(t, []string{"ResizeDeferred"}, events)

	b.HandlePodUpdates([]*v1.Pod{sized("web", 3, "1800m")})
	assert.Equal(t, []string{"ResizeDeferred", "ResizeDeferred"}, events, "another resize")
}

// A pod that gets its resources at last has the status that it has by then, and the history
// says which fields have changed.
func TestADeferredResizeKeepsTheLatestStatus(t *testing.T) {
	var updates []string
	b := newHandler(t, syncloop.HandlerOptions{
		Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}},
		Observer: runtime.Observer{NonBlocking: true, Record: func(r runtime.Record) {
			if r.Kind == runtime.KindUpdate {
				updates = append(updates, r.Message)
			}
		}},
	})
	other := sized("other", 1, "1")
	b.HandlePodAdditions([]*v1.Pod{sized("web", 1, "500m"), other})
	b.HandlePodUpdates([]*v1.Pod{sized("web", 2, "2")})
	b.HandlePodReconcile([]*v1.Pod{testpod.With(sized("web", 2, "2"), func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: "example.com/gate", Status: v1.ConditionTrue}}
	})})
	b.HandlePodRemoves([]*v1.Pod{other})
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	web := b.pods.of("uid-web")
	assert.Equal(t, "2", cpuOf(web))
	assert.Len(t, web.Status.Conditions, 1)
	assert.Equal(t, []string{"", "spec.containers{main}.resources"}, updates)
}

// In a pod of the API server CPU and memory act on what runs.
func TestAResizeIsAnUpdateThatIsApplied(t *testing.T) {
	var events []string
	b := newHandler(t,
		syncloop.HandlerOptions{Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { events = append(events, e.Reason+": "+e.Message) }}})
	b.HandlePodAdditions([]*v1.Pod{sized("web", 1, "500m")})
	b.HandlePodUpdates([]*v1.Pod{sized("web", 2, "1")})
	assert.Equal(t,
		[]string{
			`ResizeStarted: Pod resize started: {"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}],"generation":2}`}, events)
}

// Deferred resizes get what becomes free in kubelet's order.
func TestTheOrderOfDeferredResizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		priority := func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](7) }
		guaranteed := func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSGuaranteed }
		all := map[string]func(*v1.Pod){"a-young": func(*v1.Pod) {}, "b-old": func(*v1.Pod) {}, "c-class": guaranteed,
			"d-priority": priority, "e-less": func(*v1.Pod) {}}
		refuse := true
		var asked []string
		opts := syncloop.HandlerOptions{Admit: lifecycle.AdmitterFunc("test", func(req lifecycle.AdmitRequest) error {
			if req.Held == nil {
				return nil
			}
			asked = append(asked, req.Pod.Name)
			if refuse {
				return lifecycle.Refuse("Full", "full")
			}
			return nil
		})}
		b := newHandler(t, opts)
		for name, change := range all {
			b.HandlePodAdditions([]*v1.Pod{testpod.With(sized(name, 1, "1"), change)})
		}
		for _, name := range []string{"e-less", "d-priority", "c-class", "b-old", "a-young"} {
			time.Sleep(time.Second)
			cpu := "2"
			if name == "e-less" {
				cpu = "500m"
			}
			b.HandlePodUpdates([]*v1.Pod{testpod.With(sized(name, 2, cpu), all[name])})
		}
		time.Sleep(time.Second)
		// it is deferred all the time
		b.HandlePodUpdates([]*v1.Pod{testpod.With(sized("b-old", 3, "2500m"), all["b-old"])})
		asked = nil
		require.NoError(t, b.HandlePodCleanups(t.Context()))
		want := []string{"e-less", "d-priority", "c-class", "b-old", "a-young"}
		assert.Equal(t, want, asked)
		refuse, asked = false, nil
		require.NoError(t, b.HandlePodCleanups(t.Context()))
		assert.Equal(t, want, asked)

		// Also with the next agent, which finds in the statuses since when they wait.
		refuse = true
		next := newHandler(t, opts)
		var pods []*v1.Pod
		for i, name := range want {
			cpu := "2"
			if name == "e-less" {
				cpu = "500m"
			}
			pods = append(pods, testpod.With(heldPod(name, cpu, "1", func(s *v1.PodStatus) {
				s.ObservedGeneration = 2
				s.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue,
					Reason:             v1.PodReasonDeferred,
					LastTransitionTime: metav1.NewTime(time.Now().Add(time.Duration(i) * time.Second))}}
			}), all[name]))
		}
		slices.Reverse(pods)
		asked = nil
		next.HandlePodAdditions(pods)
		assert.Equal(t, want, asked)
		asked = nil
		require.NoError(t, next.HandlePodCleanups(t.Context()))
		assert.Equal(t, want, asked)
	})
}
