package syncloop_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// sized returns a pod of the API server in this generation that requests CPU.
func sized(name string, generation int64, cpu string) *v1.Pod {
	return testpod.With(makePod(name), func(pod *v1.Pod) {
		pod.Generation, pod.Annotations = generation, map[string]string{runtime.AnnotationConfigSource: runtime.SourceAPI}
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	})
}

func cpuOf(pod *v1.Pod) string { return pod.Spec.Containers[0].Resources.Requests.Cpu().String() }

func TestAResizeNeedsFreeResources(t *testing.T) {
	var events []string
	b := newHandler(t, syncloop.HandlerOptions{
		Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}},
		Event: func(e runtime.Event) { events = append(events, e.Reason) },
	})
	web, other := sized("web", 1, "500m"), sized("other", 1, "1")
	b.HandlePodAdditions([]*v1.Pod{web, other})
	held := func() string { return cpuOf(b.pods[web.UID]) }

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
	assert.Equal(t, "b", b.pods[web.UID].Labels["a"])
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
	b := newHandler(t, syncloop.HandlerOptions{Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}})
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

func TestTheResourcesOfThePodAsAWholeCannotBeResized(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{})
	b.HandlePodAdditions([]*v1.Pod{sized("web", 1, "500m")})
	b.HandlePodUpdates([]*v1.Pod{testpod.With(sized("web", 2, "500m"), func(p *v1.Pod) {
		p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}
	})})
	c, _ := b.ResizePending("uid-web")
	assert.Equal(t, v1.PodReasonInfeasible, c.Reason)
	assert.Nil(t, b.pods["uid-web"].Spec.Resources)
}

// An agent that starts takes what a pod holds from its status, so that a pod that runs is not
// refused for a resize that was requested meanwhile.
func TestAResizeWhileNoAgentRan(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}})
	running := func(name, wanted, held string) *v1.Pod {
		return testpod.With(sized(name, 2, wanted), func(p *v1.Pod) {
			p.Status.Phase = v1.PodRunning
			p.Status.ContainerStatuses = []v1.ContainerStatus{{
				Name: "main", ContainerID: "fake://1", AllocatedResources: v1.ResourceList{v1.ResourceCPU: resource.MustParse(held)},
				State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}, Resources: &v1.ResourceRequirements{},
			}}
		})
	}
	b.HandlePodAdditions([]*v1.Pod{running("big", "3", "1"), running("web", "1", "500m")})
	assert.Equal(t, "1", cpuOf(b.pods["uid-big"]))
	assert.Equal(t, "1", cpuOf(b.pods["uid-web"]), "there is room")
	assert.Equal(t, []string{"create big", "create web", "change big", "change web"}, b.workers.take())
	_, pending := b.ResizePending("uid-big")
	assert.True(t, pending)
}

// In a pod of the API server CPU and memory act on what runs.
func TestAResizeIsAnUpdateThatIsApplied(t *testing.T) {
	var events []string
	b := newHandler(t, syncloop.HandlerOptions{Event: func(e runtime.Event) { events = append(events, e.Reason+": "+e.Message) }})
	b.HandlePodAdditions([]*v1.Pod{sized("web", 1, "500m")})
	b.HandlePodUpdates([]*v1.Pod{sized("web", 2, "1")})
	assert.Equal(t, []string{`ResizeStarted: Pod resize started: {"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}],"generation":2}`}, events)
}
