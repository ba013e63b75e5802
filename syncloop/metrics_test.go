package syncloop_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// measured is an observer that keeps what is measured.
func measured(list *[]runtime.Measurement) runtime.Observer {
	return runtime.Observer{NonBlocking: true, Measure: func(m runtime.Measurement) { *list = append(*list, m) }}
}

// A pod that is admitted, one that is refused, and a static pod are measured, and counted at the next cleanup.
func TestMeasurementsOfAdmission(t *testing.T) {
	var got []runtime.Measurement
	b := newHandler(t, syncloop.HandlerOptions{Observer: measured(&got),
		Admit: syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}})
	static := testpod.With(makePod("static"), func(pod *v1.Pod) {
		pod.Annotations = map[string]string{podspec.AnnotationConfigSource: "file"}
	})
	b.HandlePodAdditions([]*v1.Pod{static, sized("web", 1, "500m"), sized("big", 1, "2")})
	assert.ElementsMatch(t, []runtime.Measurement{syncloop.Admitted{Containers: 1}, syncloop.Admitted{Containers: 1},
		syncloop.Refused{Reason: "OutOfcpu"}}, got)
	got = nil
	for _, name := range []string{"static", "web"} {
		b.workers.states[makePod(name).UID] = podworkers.State{Phase: podworkers.PhaseSync, HasConfig: true}
	}
	require.NoError(t, b.HandlePodCleanups(t.Context()))
	assert.Equal(t, []runtime.Measurement{syncloop.Counts{Desired: [2]int{2, 1}, Active: [2]int{1, 1}}}, got)
}

// What a resize requests is measured, how many wait, and how a deferred one ends.
func TestMeasurementsOfResizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []runtime.Measurement
		take := func() []runtime.Measurement {
			taken := got
			got = nil
			return taken
		}
		infeasible := false
		limits := syncloop.Limits{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}
		b := newHandler(t, syncloop.HandlerOptions{Observer: measured(&got), Admit: lifecycle.AdmitterFunc("limits",
			func(req lifecycle.AdmitRequest) error {
				if infeasible {
					return &runtime.TerminalError{Reason: v1.PodReasonInfeasible, Detail: "swap_limitation"}
				}
				_, err := limits.Admit(req)
				return err
			})})
		b.HandlePodAdditions([]*v1.Pod{sized("web", 1, "500m")})
		take()
		requested := func(operation string) runtime.Measurement {
			return syncloop.ResizeRequested{Resource: v1.ResourceCPU, Requirement: "requests", Operation: operation}
		}
		deferred := syncloop.PendingKind{Reason: v1.PodReasonDeferred, Priority: "normal"}

		b.HandlePodUpdates([]*v1.Pod{sized("web", 2, "1")})
		assert.Equal(t, []runtime.Measurement{requested("increase")}, take())
		b.HandlePodUpdates([]*v1.Pod{sized("web", 3, "3")})
		assert.Equal(t, []runtime.Measurement{requested("increase"), syncloop.ResizesPending{deferred: 1}}, take())
		b.HandlePodUpdates([]*v1.Pod{sized("web", 3, "3")}) // of something else
		assert.Equal(t, []runtime.Measurement{syncloop.ResizesPending{deferred: 1}}, take())
		time.Sleep(time.Minute)
		b.HandlePodUpdates([]*v1.Pod{sized("web", 4, "2")})
		assert.Equal(t, []runtime.Measurement{requested("decrease"), syncloop.DeferredResizeEnded{Priority: "normal",
			Resolution: syncloop.ResizeAccepted, Took: time.Minute}, syncloop.ResizesPending{}}, take())

		b.HandlePodUpdates([]*v1.Pod{sized("web", 5, "3")})
		take()
		b.HandlePodUpdates([]*v1.Pod{sized("web", 6, "2")})
		assert.Contains(t, take(), syncloop.DeferredResizeEnded{Priority: "normal", Resolution: syncloop.ResizeReverted})
		infeasible = true
		b.HandlePodUpdates([]*v1.Pod{sized("web", 7, "1")})
		assert.Equal(t, []runtime.Measurement{requested("decrease"),
			syncloop.ResizesPending{{Reason: v1.PodReasonInfeasible, Priority: "normal"}: 1},
			syncloop.ResizeInfeasible{Detail: "swap_limitation"}}, take())
		b.HandlePodRemoves([]*v1.Pod{sized("web", 7, "1")})
		assert.Equal(t, []runtime.Measurement{syncloop.ResizesPending{}}, take())
	})
}

// A pod that is preempted is measured, and has an event if it does not end in time.
func TestAPreemptionThatExceedsItsGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []runtime.Measurement
		events := make(chan runtime.Event, 10)
		observer := measured(&got)
		observer.Event = func(e runtime.Event) { events <- e }
		small, other := makePod("small"), makePod("other")
		b := newHandler(t, syncloop.HandlerOptions{Observer: observer, Admit: preempting{small, other}})
		b.HandlePodAdditions([]*v1.Pod{small, other})
		b.workers.states[small.UID] = podworkers.State{Phase: podworkers.PhaseSync, HasConfig: true}
		b.workers.states[other.UID] = podworkers.State{Phase: podworkers.PhaseSync, HasConfig: true}
		b.HandlePodAdditions([]*v1.Pod{makePod("critical")})
		assert.Contains(t, got, syncloop.Preempted{Resource: v1.ResourceCPU})
		for _, u := range b.workers.kills {
			if u.Pod.UID == other.UID {
				u.Kill.Done()
			}
		}
		for len(events) > 0 {
			<-events // of the preemption
		}
		time.Sleep(44 * time.Second)
		assert.Empty(t, events, "one and a half of 30 s")
		time.Sleep(2 * time.Second)
		assert.Equal(t, runtime.Event{Pod: runtime.RefOf(small), Type: v1.EventTypeWarning,
			Reason:  "ExceededGracePeriod",
			Message: "Container runtime did not kill the pod within specified grace period."}, <-events)
		assert.Empty(t, events)
	})
}

// preempting ends pods for one that is named critical.
type preempting []*v1.Pod

func (preempting) Name() string { return "preempting" }

func (p preempting) Admit(req lifecycle.AdmitRequest) (r lifecycle.AdmitResponse, _ error) {
	if req.Pod.Name == "critical" {
		for _, pod := range p {
			r.Evict = append(r.Evict, lifecycle.Preemption{Pod: pod, Reason: "Preempting", Resource: v1.ResourceCPU})
		}
	}
	return r, nil
}
