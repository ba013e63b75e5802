package syncloop_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func TestAdmissionIsAChain(t *testing.T) {
	var asked []string
	ask := func(name string, err error) lifecycle.Admitter {
		return lifecycle.AdmitterFunc("test", func(req lifecycle.AdmitRequest) error {
			asked = append(asked, name)
			assert.Equal(t, "node-1", req.Host.NodeName)
			return err
		})
	}
	var seen []runtime.Event
	opts := syncloop.HandlerOptions{
		Host:     &runtime.Host{NodeName: "node-1"},
		Observer: runtime.Observer{NonBlocking: true, Event: func(e runtime.Event) { seen = append(seen, e) }},
		Admit: lifecycle.Chain(ask("first", nil),
			ask("second", fmt.Errorf("policy: %w", lifecycle.Refuse("Denied", "not here"))), ask("third", nil)),
	}
	b := newHandler(t, opts)
	web := makePod("web")
	b.HandlePodAdditions([]*v1.Pod{web})
	assert.Equal(t, []string{"first", "second"}, asked, "in order, up to the first refusal")
	assert.Equal(t, "Denied", b.status.m[web.UID].Reason)
	assert.Equal(t, "Pod was rejected: not here", b.status.m[web.UID].Message)
	assert.Equal(t, []runtime.Event{{Pod: runtime.RefOf(web), Type: "Warning", Reason: "Denied", Message: "not here",
		Logged: true}}, seen)
	assert.Empty(t, b.workers.take())
}

// The last events are received before the handler has stopped.
func TestStopWaitsForTheObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		b := newHandler(t, syncloop.HandlerOptions{
			Observer: runtime.Observer{Event: func(e runtime.Event) {
				time.Sleep(time.Second)
				seen = append(seen, e.Reason)
			}},
			Admit: lifecycle.AdmitterFunc("test",
				func(lifecycle.AdmitRequest) error { return lifecycle.Refuse("Denied", "not here") }),
		})
		b.HandlePodAdditions([]*v1.Pod{makePod("web")})
		b.Stop()
		assert.Equal(t, []string{"Denied"}, seen)
	})
}

func TestAnAdmitterThatFailsRefuses(t *testing.T) {
	for name, f := range map[string]func(lifecycle.AdmitRequest) error{
		"error": func(lifecycle.AdmitRequest) error { return errors.New("policy server away") },
		"panic": func(lifecycle.AdmitRequest) error { panic("policy server away") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newHandler(t, syncloop.HandlerOptions{Admit: lifecycle.AdmitterFunc("policy", f)})
			web := makePod("web")
			b.HandlePodAdditions([]*v1.Pod{web})
			assert.Equal(t, v1.PodFailed, b.status.m[web.UID].Phase)
			assert.Equal(t, "UnexpectedAdmissionError", b.status.m[web.UID].Reason)
			assert.Contains(t, b.status.m[web.UID].Message, "policy server away")
		})
	}
}

// endings is a status manager that records the end of pods.
type endings struct {
	statuses
	*script
}

func (e endings) PodEnded(ref runtime.PodRef) {
	e.add("ended %s/%s %s", ref.Namespace, ref.Name, ref.UID)
}
func (e endings) Recheck() { e.add("recheck") }

func TestTheEndOfEachPodIsReported(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{})
	e := endings{newStatuses(), &script{}}
	h, err := syncloop.NewHandler(syncloop.HandlerDeps{Pods: b.pods, Workers: b.workers, Status: e, Runtime: b.runtime,
		Steps: b.steps(t)},
		syncloop.HandlerOptions{PodsDir: b.podsDir})
	require.NoError(t, err)
	clean := func() []string {
		t.Helper()
		require.NoError(t, h.HandlePodCleanups(t.Context()))
		return e.take()
	}
	web := makePod("web")
	dead := &runtime.Pod{PodRef: runtime.PodRef{UID: "d", Name: "dead", Namespace: "ns"},
		Containers: []runtime.Container{{Name: "c", State: runtime.ContainerExited}}}
	orphan := runs("o", "orphan", runtime.ContainerRunning)
	b.runtime.pods = []*runtime.Pod{dead, orphan}
	h.HandlePodAdditions([]*v1.Pod{web})
	assert.Equal(t, []string{"recheck", "ended ns/dead d"}, clean(),
		"what an earlier agent left, which may not have reported it")
	assert.Equal(t, []string{"recheck"}, clean(), "once")

	// It is added and removed between two cleanups, and never starts.
	short := makePod("short")
	h.HandlePodAdditions([]*v1.Pod{short})
	h.HandlePodRemoves([]*v1.Pod{short})
	b.workers.states[short.UID] = podworkersTerminated
	b.workers.states["o"] = podworkersTerminated
	b.runtime.pods = nil
	assert.ElementsMatch(t, []string{"recheck", "ended ns/short uid-short", "ended ns/orphan o"}, clean())

	h.HandlePodRemoves([]*v1.Pod{web})
	assert.Equal(t, []string{"recheck"}, clean(), "it still ends")
	b.runtime.pods = []*runtime.Pod{{PodRef: runtime.RefOf(web), Containers: dead.Containers}}
	b.workers.states[web.UID] = podworkersTerminated
	assert.Equal(t, []string{"ended ns/web uid-web", "recheck"}, clean())
	assert.Equal(t, []string{"recheck"}, clean())
}

// keptEnds are ends that are never delivered.
type keptEnds struct {
	keeper
	ends map[types.UID]runtime.PodRef
}

func (k *keptEnds) KeepEnd(pod runtime.PodRef) { k.ends[pod.UID] = pod }
func (k *keptEnds) EndDelivered(uid types.UID) { delete(k.ends, uid) }
func (k *keptEnds) DueEnds(desired func(types.UID) bool) (due []runtime.PodRef) {
	for uid, pod := range k.ends {
		if !desired(uid) {
			due = append(due, pod)
		}
	}
	return due
}

// While an end is kept because nobody receives it, cleanups do not report and record it
// again and again.
func TestAnEndThatIsNotDeliveredIsReportedOnce(t *testing.T) {
	b := newHandler(t, syncloop.HandlerOptions{})
	e := endings{newStatuses(), &script{}}
	before := runtime.PodRef{UID: "uid-before", Namespace: "ns", Name: "before"} // of an earlier agent
	kept := &keptEnds{ends: map[types.UID]runtime.PodRef{before.UID: before}}
	var gone []string
	h, err := syncloop.NewHandler(syncloop.HandlerDeps{Pods: b.pods, Workers: b.workers, Status: e, Runtime: b.runtime,
		Steps: b.steps(t), Checkpoint: kept},
		syncloop.HandlerOptions{PodsDir: b.podsDir, Observer: runtime.Observer{NonBlocking: true,
			Record: func(r runtime.Record) {
				if r.Kind == runtime.KindRemovePod {
					gone = append(gone, r.Pod.Name)
				}
			}}})
	require.NoError(t, err)
	life := func() {
		t.Helper()
		web := makePod("web")
		h.HandlePodAdditions([]*v1.Pod{web})
		require.NoError(t, h.HandlePodCleanups(t.Context()))
		h.HandlePodRemoves([]*v1.Pod{web})
		b.workers.states[web.UID] = podworkersTerminated
		for range 3 {
			require.NoError(t, h.HandlePodCleanups(t.Context()))
		}
	}
	life()
	assert.Equal(t, []string{"before", "web"}, gone)
	assert.Equal(t, []string{"recheck", "ended ns/before uid-before", "ended ns/web uid-web", "recheck", "recheck",
		"recheck"}, e.take())
	life() // the UID comes back, and ends again before the end was delivered
	assert.Equal(t, []string{"before", "web", "web"}, gone)

	kept.EndDelivered(before.UID)
	require.NoError(t, h.HandlePodCleanups(t.Context()))
	kept.KeepEnd(before)
	require.NoError(t, h.HandlePodCleanups(t.Context()))
	assert.Equal(t, []string{"before", "web", "web", "before"}, gone, "it is due anew")
}

// What an earlier agent ran was not admitted by this one, also while it is being stopped.
func TestAPodIsAdmittedThoughAnOrphanOfItsUIDEnds(t *testing.T) {
	refuse := lifecycle.AdmitterFunc("test",
		func(lifecycle.AdmitRequest) error { return lifecycle.Refuse("Denied", "not here") })
	for name, before := range map[string]string{"renamed": "was", "ended by a drain": "web"} {
		t.Run(name, func(t *testing.T) {
			b := newHandler(t, syncloop.HandlerOptions{Admit: refuse})
			web := makePod("web")
			b.runtime.pods = []*runtime.Pod{runs(web.UID, before, runtime.ContainerRunning)}
			require.NoError(t, b.Prepare(t.Context()))
			if before == "web" {
				b.workers.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: b.runtime.pods[0]})
			}
			b.HandlePodAdditions([]*v1.Pod{web})
			assert.Equal(t, []string{"kill orphan " + before}, b.workers.take())
			assert.Equal(t, "Denied", b.status.m[web.UID].Reason)
		})
	}
}
