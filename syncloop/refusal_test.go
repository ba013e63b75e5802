package syncloop_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

var refuseAll = lifecycle.AdmitterFunc("test",
	func(lifecycle.AdmitRequest) error { return lifecycle.Refuse("Full", "") })

// Nothing but a worker finishes a pod, and before that its source must not delete it.
func TestARefusedPodThatIsDeletedGetsAWorker(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{Admit: refuseAll})
	pod := makePod("web")
	b.HandlePodAdditions([]*v1.Pod{pod})
	b.HandlePodUpdates([]*v1.Pod{testpod.With(pod)})
	require.Empty(t, b.workers.take())

	deleted := testpod.With(pod, testpod.Deleted(30))
	b.HandlePodUpdates([]*v1.Pod{deleted})
	assert.Equal(t, []string{"kill web"}, b.workers.take())
	b.workers.states[pod.UID] = podworkers.State{Phase: podworkers.PhaseTerminated, Finished: true, HasConfig: true,
		TerminatingAt: time.Now()}
	for range 3 {
		require.NoError(t, b.HandlePodCleanups(t.Context()))
	}
	assert.Empty(t, b.workers.take(), "once")
	assert.True(t, b.workers.State(pod.UID).Finished, "it is remembered as long as it is desired")
}

// A refused pod must not run after a reboot: whatever its source says of it, the checkpoint does
// not get it again.
func TestTheCheckpointHasNoRefusedPod(t *testing.T) {
	for name, running := range map[string]bool{"runs": true, "does not run": false} {
		t.Run(name, func(t *testing.T) {
			b := newHandler(t, syncloop.HandlerOptions{Admit: refuseAll})
			pod := makePod("web")
			if running {
				b.runtime.pods = []*runtime.Pod{runs(pod.UID, pod.Name, runtime.ContainerRunning)}
			}
			require.NoError(t, b.Prepare(t.Context()))
			b.HandlePodAdditions([]*v1.Pod{pod})
			b.HandlePodUpdates([]*v1.Pod{testpod.With(pod, testpod.Annotation("a", "1"))})
			b.HandlePodReconcile([]*v1.Pod{testpod.With(pod, func(p *v1.Pod) {
				p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", Ready: true}}
			})})
			b.HandlePodUpdates([]*v1.Pod{testpod.With(pod, testpod.Deleted(30))})
			b.HandlePodUpdates([]*v1.Pod{testpod.With(pod, testpod.Deleted(1))})
			assert.NotContains(t, b.kept.take(), "keep uid-web")

			b.HandlePodRemoves([]*v1.Pod{pod})
			b.kept.take()
			b.HandlePodAdditions([]*v1.Pod{testpod.With(pod, testpod.Deleted(30))}) // not refused this time
			assert.Equal(t, []string{"keep uid-web"}, b.kept.take())
		})
	}
}

// Pods that do not run because the workers are drained run again with the next agent.
func TestDrainedWorkers(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{Admit: refuseAll})
	b.workers.drained = true
	pod := makePod("web")
	b.HandlePodAdditions([]*v1.Pod{pod})
	assert.Empty(t, b.workers.take())
	assert.Equal(t, "NodeShutdown", b.status.m[pod.UID].Reason)
	assert.Equal(t, "Pod was rejected: Pod was rejected as the node is shutting down.", b.status.m[pod.UID].Message)
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	assert.Equal(t, []string{"prune uid-big", "prune uid-gone"}, b.kept.take(), "the pod is kept")
	b.HandlePodRemoves([]*v1.Pod{pod})
	assert.Equal(t, []string{"drop uid-web"}, b.kept.take(), "it is not desired any more")
}

func TestAPodThatIsDeletedIsNotAdmitted(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{Admit: refuseAll})
	b.HandlePodAdditions([]*v1.Pod{testpod.With(makePod("web"), testpod.Deleted(30))})
	assert.Equal(t, []string{"create web"}, b.workers.take(), "its worker only takes it down")
	assert.Empty(t, b.status.m)
}

// A pod can become Succeeded or Failed in its source by somebody else.
func TestAPhaseThatIsFinalInTheSourceEndsThePod(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{})
	pod := makePod("web")
	b.HandlePodAdditions([]*v1.Pod{pod})
	b.workers.take()
	b.kept.take()

	b.HandlePodReconcile([]*v1.Pod{testpod.With(pod, testpod.Phase(v1.PodRunning))})
	assert.Empty(t, b.workers.take())
	failed := []*v1.Pod{testpod.With(pod, testpod.Phase(v1.PodFailed))}
	b.HandlePodReconcile(failed)
	assert.Equal(t, []string{"sync web"}, b.workers.take(), "the worker gets the pod with its phase")
	assert.Equal(t, []string{"drop uid-web"}, b.kept.take(), "it must not run after a reboot")
	b.HandlePodUpdates(failed)
	assert.Equal(t, []string{"drop uid-web"}, b.kept.take())

	b.workers.take()
	b.workers.states[pod.UID] = podworkers.State{Phase: podworkers.PhaseTerminated, HasConfig: true,
		TerminatingAt: time.Now()}
	b.HandlePodReconcile(failed)
	assert.Empty(t, b.workers.take(), "its worker knows")
}

func TestTheCheckpointHasNoPodThatArrivesEnded(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{})
	b.HandlePodAdditions([]*v1.Pod{testpod.With(makePod("web"), testpod.Phase(v1.PodSucceeded))})
	assert.Equal(t, []string{"drop uid-web"}, b.kept.take())
}

// A pod of an API server that was stopped is Failed there for good.
func TestAPodOfAnAPIServerIsNotMadeAnew(t *testing.T) {
	var events []string
	b := newHandler(t, syncloop.HandlerOptions{RecreateUpdated: true,
		Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { events = append(events, e.Reason) }}})
	pod := testpod.With(makePod("web"), testpod.Source(podspec.SourceAPI))
	b.HandlePodAdditions([]*v1.Pod{pod})
	updated := testpod.With(pod, func(p *v1.Pod) { p.Spec.Containers[0].Command = []string{"sleep"} })
	b.HandlePodUpdates([]*v1.Pod{updated})
	assert.Equal(t, []string{"create web", "change web"}, b.workers.take())
	assert.Equal(t, []string{"UpdateNotApplied"}, events)

	b.HandlePodUpdates([]*v1.Pod{testpod.With(pod, testpod.Deleted(30))})
	assert.Len(t, events, 1, "a pod that ends takes nothing on")
}
