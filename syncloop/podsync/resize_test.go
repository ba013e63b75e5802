package podsync_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/syncloop/podsync"
)

func inMemory(request, limit string) v1.ResourceRequirements {
	return v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(request)},
		Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse(limit)},
	}
}

// resizedPod returns a pod of the API server in this generation.
func resizedPod(generation int64, request, limit string) *v1.Pod {
	return testpod.With(makePod(), func(pod *v1.Pod) {
		pod.Generation, pod.Annotations = generation, map[string]string{
			podspec.AnnotationConfigSource: podspec.SourceAPI}
		pod.Spec.Containers[0].Resources = inMemory(request, limit)
	})
}

// withLimit returns a status of the pod, whose container runs with this limit.
func withLimit(limit string) *runtime.PodStatus {
	s, inForce := observed(runtime.ContainerRunning, 0), inMemory(limit, limit)
	delete(inForce.Requests, v1.ResourceMemory) // its cgroup protects none
	s.Containers[0].Resources = &inForce
	return s
}

// resizer is a Syncer of one pod, whose resizes are observed.
type resizer struct {
	*podsync.Syncer
	t      *testing.T
	world  world
	events []string
	// pending is the condition PodResizePending, if it has a type.
	pending v1.PodCondition
}

func newResizer(t *testing.T) *resizer {
	r := &resizer{t: t}
	r.Syncer = newSyncer(t, &r.world, podsync.Options{
		Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { r.events = append(r.events, e.Reason) }},
		ResizePending: func(types.UID) (v1.PodCondition, bool) { return r.pending, r.pending.Type != "" },
	})
	return r
}

// sync syncs the pod whose container has this limit, and returns the conditions before and after the
// call of the runtime. problem is the error of the runtime.
func (r *resizer) sync(pod *v1.Pod, limit, problem string) (before, after []v1.PodCondition) {
	r.t.Helper()
	r.world.sync, r.world.syncErr = runtime.SyncResult{ResizeError: problem}, nil
	if problem != "" {
		r.world.syncErr = errors.New(problem)
	}
	r.world.during = func() { before = r.conditions() }
	_, err := r.SyncPod(r.t.Context(), podworkers.Sync, pod, withLimit(limit))
	require.ErrorIs(r.t, err, r.world.syncErr)
	return before, r.conditions()
}

func (r *resizer) conditions() (found []v1.PodCondition) {
	for _, c := range r.world.last().Conditions {
		if c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
			found = append(found, v1.PodCondition{Type: c.Type, ObservedGeneration: c.ObservedGeneration,
				Reason: c.Reason, Message: c.Message})
		}
	}
	return found
}

func (r *resizer) takeEvents() []string {
	events := r.events
	r.events = nil
	return events
}

func inProgress(generation int64, problem string) []v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodResizeInProgress, ObservedGeneration: generation, Message: problem}
	if problem != "" {
		c.Reason = v1.PodReasonError
	}
	return []v1.PodCondition{c}
}

func TestConditionsOfAResize(t *testing.T) {
	r := newResizer(t)
	r.sync(resizedPod(1, "32Mi", "64Mi"), "64Mi", "")
	require.Empty(t, r.conditions())

	before, _ := r.sync(resizedPod(2, "32Mi", "128Mi"), "64Mi", "")
	assert.Equal(t, inProgress(2, ""), before)
	r.sync(resizedPod(2, "32Mi", "128Mi"), "128Mi", "")
	assert.Empty(t, r.conditions())
	assert.Equal(t, []string{"ResizeCompleted"}, r.takeEvents())

	// A request of memory is in no cgroup, so that its resize ends at once.
	before, _ = r.sync(resizedPod(3, "48Mi", "128Mi"), "128Mi", "")
	assert.Empty(t, before)
	assert.Equal(t, []string{"ResizeCompleted"}, r.takeEvents())
	r.sync(resizedPod(4, "48Mi", "128Mi"), "128Mi", "")
	assert.Empty(t, r.takeEvents(), "another change")
}

// A container that is to be restarted is resized then, also if no cgroup has what has changed.
func TestAResizeByARestart(t *testing.T) {
	r := newResizer(t)
	restarted := func(generation int64, request string) *v1.Pod {
		return testpod.With(resizedPod(generation, request, "64Mi"), func(p *v1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory,
				RestartPolicy: v1.RestartContainer}}
		})
	}
	before, after := restarted(1, "32Mi"), restarted(2, "48Mi")
	syncPod := func(pod, created *v1.Pod) []v1.PodCondition {
		status := withLimit("64Mi")
		status.Containers[0].ResizeHash = podspec.ResizeHash(created, &created.Spec.Containers[0])
		r.world.sync.Changed = created != pod // it is restarted
		_, err := r.SyncPod(t.Context(), podworkers.Sync, pod, status)
		require.NoError(t, err)
		return r.conditions()
	}
	assert.Empty(t, syncPod(before, before))
	assert.Equal(t, inProgress(2, ""), syncPod(after, before))
	assert.Empty(t, r.takeEvents())
	assert.Empty(t, syncPod(after, after))
	assert.Equal(t, []string{"ResizeCompleted"}, r.takeEvents())
}

// The error of a resize stays until the resize ends or another begins, which has a generation of
// its own.
func TestErrorsOfAResize(t *testing.T) {
	r := newResizer(t)
	r.sync(resizedPod(1, "32Mi", "64Mi"), "64Mi", "")
	small := resizedPod(2, "8Mi", "16Mi")
	_, after := r.sync(small, "64Mi", "in use")
	assert.Equal(t, inProgress(2, "in use"), after)
	assert.Equal(t, []string{"ResizeError"}, r.takeEvents())

	r.world.setUpErr = errors.New("no volume")
	r.world.sync, r.world.during = runtime.SyncResult{}, nil
	_, err := r.SyncPod(t.Context(), podworkers.Sync, small, withLimit("64Mi"))
	require.ErrorContains(t, err, "no volume")
	r.RefreshStatus("u1")
	assert.Equal(t, inProgress(2, "in use"), r.conditions(), "it was not tried again")
	r.world.setUpErr = nil
	before, _ := r.sync(testpod.With(small, func(p *v1.Pod) { p.Generation = 3 }), "64Mi", "in use")
	assert.Equal(t, inProgress(2, "in use"), before, "another change")
	r.takeEvents()

	before, after = r.sync(resizedPod(4, "8Mi", "24Mi"), "64Mi", "in use")
	assert.Equal(t, inProgress(4, ""), before)
	assert.Equal(t, inProgress(4, "in use"), after)
	assert.Equal(t, []string{"ResizeError"}, r.takeEvents())
	r.sync(resizedPod(4, "8Mi", "24Mi"), "24Mi", "")
	assert.Empty(t, r.conditions())
	assert.Equal(t, []string{"ResizeCompleted"}, r.takeEvents())
}

// The runtime may report other resources than were set. Another version of the pod is not resized again for that.
func TestAResizeThatIsNotReported(t *testing.T) {
	r := newResizer(t)
	pod := resizedPod(2, "32Mi", "64Mi")
	before, _ := r.sync(pod, "128Mi", "")
	assert.Equal(t, inProgress(2, ""), before)
	assert.Empty(t, r.conditions(), "the runtime has nothing to do")
	r.sync(pod.DeepCopy(), "128Mi", "")
	assert.Empty(t, r.conditions())
	assert.Equal(t, []string{"ResizeCompleted"}, r.takeEvents())
	for generation := range int64(3) {
		before, after := r.sync(resizedPod(3+generation, "32Mi", "64Mi"), "128Mi", "")
		assert.Empty(t, before)
		assert.Empty(t, after)
	}
	assert.Empty(t, r.takeEvents())
}

// An agent that starts continues the resize of an earlier one.
func TestResizesAcrossARestart(t *testing.T) {
	reported := func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue,
			ObservedGeneration: 2, Reason: v1.PodReasonError, Message: "in use"}}
	}
	pod := testpod.With(resizedPod(3, "8Mi", "16Mi"), reported)
	t.Run("under way", func(t *testing.T) {
		r := newResizer(t)
		before, after := r.sync(pod, "64Mi", "in use")
		assert.Equal(t, inProgress(2, "in use"), before)
		assert.Equal(t, inProgress(2, "in use"), after)
		assert.Empty(t, r.takeEvents(), "as before")
	})
	t.Run("done", func(t *testing.T) {
		r := newResizer(t)
		r.sync(pod, "16Mi", "")
		assert.Empty(t, r.conditions())
		assert.Equal(t, []string{"ResizeCompleted"}, r.takeEvents())
	})
}

// What an earlier agent has set is not reported as a resize because the runtime reports something else.
func TestAResizeOfAnEarlierAgentThatIsNotReported(t *testing.T) {
	r := newResizer(t)
	pod := testpod.With(resizedPod(2, "32Mi", "64Mi"), func(p *v1.Pod) { p.Status.ObservedGeneration = 2 })
	for range 2 {
		before, after := r.sync(pod, "128Mi", "")
		assert.Empty(t, before)
		assert.Empty(t, after)
	}
	assert.Empty(t, r.takeEvents())
	_, after := r.sync(pod, "128Mi", "no cgroup")
	assert.Equal(t, inProgress(2, "no cgroup"), after)
	before, _ := r.sync(resizedPod(3, "32Mi", "96Mi"), "128Mi", "")
	assert.Equal(t, inProgress(3, ""), before)
}

// The condition PodResizePending is in the status from the next sync on, also if nothing else has changed.
func TestAPendingResize(t *testing.T) {
	r := newResizer(t)
	pod, status := resizedPod(2, "32Mi", "64Mi"), withLimit("64Mi")
	syncPod := func() []v1.PodCondition {
		_, err := r.SyncPod(t.Context(), podworkers.Sync, pod, status)
		require.NoError(t, err)
		return r.conditions()
	}
	assert.Empty(t, syncPod())
	r.pending = v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred,
		Message: "full", ObservedGeneration: 2}
	assert.Equal(t, []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonDeferred, Message: "full",
		ObservedGeneration: 2}}, syncPod())
	r.pending = v1.PodCondition{}
	assert.Empty(t, syncPod())
	assert.Empty(t, r.takeEvents())
}

// The resources of a pod that is not from an API server act on the containers that start next.
func TestNoResizesOfOtherPods(t *testing.T) {
	r := newResizer(t)
	for generation, limit := range []string{"64Mi", "128Mi"} {
		pod := resizedPod(int64(generation+1), "32Mi", limit)
		pod.Annotations = nil
		before, after := r.sync(pod, "64Mi", "")
		assert.Empty(t, before)
		assert.Empty(t, after)
	}
	assert.Empty(t, r.takeEvents())
}

// preparer is a component that holds the resources of a pod as a whole.
type preparer struct{ response lifecycle.PrepareResponse }

func (*preparer) Name() string { return "whole" }
func (p *preparer) Prepare(context.Context, lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	return p.response, nil
}

// A resize of the pod as a whole ends when its component has made it, after the containers, and what is in force has
// been read.
func TestAResizeOfThePodAsAWhole(t *testing.T) {
	whole := &preparer{}
	r := &resizer{t: t}
	r.world.statuses = map[types.UID]v1.PodStatus{}
	deps := r.world.deps()
	deps.Join = []lifecycle.Component{whole}
	var err error
	r.Syncer, err = podsync.New(deps, podsync.Options{
		PodsDir: t.TempDir(), Host: &runtime.Host{},
		Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { r.events = append(r.events, e.Reason) }},
	})
	require.NoError(t, err)
	pod := func(generation int64, limit string) *v1.Pod {
		return testpod.With(resizedPod(generation, "8Mi", "16Mi"), func(p *v1.Pod) {
			resources := inMemory("32Mi", limit)
			p.Spec.Resources = &resources
		})
	}
	syncPod := func(pod *v1.Pod, inForce string) (before []v1.PodCondition, result podworkers.Result, err error) {
		status, resources := withLimit("16Mi"), inMemory("32Mi", inForce)
		status.Resources = &resources
		r.world.during = func() { before = r.conditions() }
		result, err = r.SyncPod(t.Context(), podworkers.Sync, pod, status)
		return before, result, err
	}
	_, _, err = syncPod(pod(1, "64Mi"), "64Mi")
	require.NoError(t, err)

	whole.response.ResizeError = "in use"
	before, _, err := syncPod(pod(2, "48Mi"), "64Mi")
	require.EqualError(t, err, "pod ns/web(u1): resizing it: in use")
	assert.Equal(t, inProgress(2, ""), before)
	assert.Equal(t, inProgress(2, "in use"), r.conditions())
	assert.True(t, r.world.held, "the containers wait for it")
	assert.Equal(t, "64Mi", r.world.last().Resources.Limits.Memory().String())
	assert.Equal(t, []string{"ResizeError"}, r.takeEvents())

	whole.response = lifecycle.PrepareResponse{Changed: true}
	_, result, err := syncPod(pod(2, "48Mi"), "64Mi")
	require.NoError(t, err)
	assert.True(t, result.Changed, "it is read again")
	assert.False(t, r.world.held)
	assert.Equal(t, inProgress(2, "in use"), r.conditions(), "as kubelet has it, until it is read")
	whole.response = lifecycle.PrepareResponse{}
	before, _, err = syncPod(pod(2, "48Mi"), "48Mi")
	require.NoError(t, err)
	assert.Empty(t, before)
	assert.Equal(t, []string{"ResizeCompleted"}, r.takeEvents())
	assert.Equal(t, "48Mi", r.world.last().Resources.Limits.Memory().String())

	// Another agent begins before it has read what is in force: the resize has not ended by that.
	whole.response.ResizeError = "in use"
	_, _, err = syncPod(pod(4, "40Mi"), "48Mi")
	require.Error(t, err)
	r.takeEvents()
	r.Syncer, err = podsync.New(deps, podsync.Options{
		PodsDir: t.TempDir(), Host: &runtime.Host{},
		Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { r.events = append(r.events, e.Reason) }},
	})
	require.NoError(t, err)
	restarted := pod(4, "40Mi")
	restarted.Status.Conditions = inProgress(4, "in use")
	for range 3 {
		_, err = r.SyncPod(t.Context(), podworkers.Sync, restarted, withLimit("16Mi"))
		require.Error(t, err)
		assert.Equal(t, inProgress(4, "in use"), r.conditions())
	}
	assert.Empty(t, r.takeEvents())
	whole.response = lifecycle.PrepareResponse{}
	_, _, err = syncPod(restarted, "40Mi")
	require.NoError(t, err)
	assert.Equal(t, []string{"ResizeCompleted"}, r.takeEvents())

	// A kernel that has another amount does not keep the resize from its end.
	before, _, err = syncPod(pod(5, "50Mi"), "48Mi")
	require.NoError(t, err)
	assert.Equal(t, inProgress(5, ""), before)
	assert.Empty(t, r.conditions())
	assert.Equal(t, []string{"ResizeCompleted"}, r.takeEvents())
}

// A resize of a volume in memory ends when its component has made it, whatever the containers have.
func TestAResizeOfAVolume(t *testing.T) {
	volumes := &preparer{}
	r := &resizer{t: t}
	r.world.statuses = map[types.UID]v1.PodStatus{}
	deps := r.world.deps()
	deps.Join = []lifecycle.Component{volumes}
	begin := func() {
		t.Helper()
		var err error
		r.Syncer, err = podsync.New(deps, podsync.Options{
			PodsDir: t.TempDir(), Host: &runtime.Host{},
			Observer: runtime.Observer{NonBlocking: true,
				Event: func(e runtime.Event) { r.events = append(r.events, e.Reason) }},
		})
		require.NoError(t, err)
	}
	begin()
	sized := func(generation int64, size string) *v1.Pod {
		return testpod.With(resizedPod(generation, "8Mi", "16Mi"), func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
				Medium: v1.StorageMediumMemory, SizeLimit: new(resource.MustParse(size))}}}}
		})
	}
	syncPod := func(pod *v1.Pod) (before []v1.PodCondition, err error) {
		r.world.during = func() { before = r.conditions() }
		_, err = r.SyncPod(t.Context(), podworkers.Sync, pod, withLimit("16Mi"))
		return before, err
	}
	_, err := syncPod(sized(1, "4Mi"))
	require.NoError(t, err)
	before, err := syncPod(sized(2, "8Mi"))
	require.NoError(t, err)
	assert.Equal(t, inProgress(2, ""), before)
	assert.Empty(t, r.conditions())
	assert.Equal(t, []string{"ResizeCompleted"}, r.takeEvents())

	volumes.response.ResizeError = "in use"
	shrunk := sized(3, "2Mi")
	for range 2 {
		_, err = syncPod(shrunk)
		require.Error(t, err)
		assert.Equal(t, inProgress(3, "in use"), r.conditions())
	}
	assert.Equal(t, []string{"ResizeError"}, r.takeEvents())
	begin() // another agent
	shrunk.Status.Conditions = inProgress(3, "in use")
	_, err = syncPod(shrunk)
	require.Error(t, err)
	assert.Equal(t, inProgress(3, "in use"), r.conditions())
	assert.Empty(t, r.takeEvents())
	volumes.response = lifecycle.PrepareResponse{}
	_, err = syncPod(shrunk)
	require.NoError(t, err)
	assert.Empty(t, r.conditions())
	assert.Equal(t, []string{"ResizeCompleted"}, r.takeEvents())
}
