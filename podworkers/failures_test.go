package podworkers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/history/fake"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestPanicIsAFailedCall(t *testing.T) {
	var mu sync.Mutex
	var logs []string
	log := funcr.New(func(_, args string) { mu.Lock(); logs = append(logs, args); mu.Unlock() }, funcr.Options{})
	var begun, ended, finished []types.UID
	add := func(list *[]types.UID) func(runtime.PodRef) {
		return func(ref runtime.PodRef) { mu.Lock(); *list = append(*list, ref.UID); mu.Unlock() }
	}
	var measured recorder
	var past fake.History
	inBubble(t, podworkers.Options{Observer: runtime.Observer{Logger: log, Record: past.Record,
		Measure: measured.measure}, OnBegin: add(&begun), OnEnd: add(&ended),
		OnFinished: add(&finished)}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		bad := true
		n.sync = func(_ context.Context, _ podworkers.UpdateType, pod *v1.Pod) (podworkers.Result, error) {
			if pod.UID == "bad" && bad {
				bad = false
				panic("boom")
			}
			return podworkers.Result{}, nil
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("bad", "bad"), Received: time.Now()})
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("good", "good")})
		assert.ElementsMatch(t, []string{"0s create bad", "0s create good"}, n.took())
		assert.Equal(t, podworkers.PhaseSync, w.State("bad").Phase)
		time.Sleep(time.Minute)
		again := n.took()
		require.Len(t, again, 1)
		assert.Regexp(t, `^1\.\d+s sync bad$`, again[0])
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: apiPod("bad", "bad"),
			Kill: &podworkers.KillOptions{Done: func() { panic("boom") }}})
		assert.Len(t, n.took(), 2)
	})
	failed := past.Records("bad", runtime.KindSync)
	assert.Equal(t, []runtime.Record{{Stage: runtime.StageDone, Kind: runtime.KindSync, Reason: "sync",
		Error: "panic: boom"}}, failed)
	require.Len(t, logs, 2)
	assert.Contains(t, logs[0], "default/bad(bad)")
	assert.Contains(t, logs[0], "failures_test.go")
	assert.Contains(t, logs[1], `"callback"="Done"`)
	calls := measured.calls
	require.Len(t, calls, 5)
	var called []types.UID
	for _, c := range calls {
		called = append(called, c.Pod.UID)
	}
	assert.ElementsMatch(t, called, begun)
	assert.ElementsMatch(t, called, ended)
	assert.Equal(t, []types.UID{"bad"}, finished)
	for _, c := range calls[:2] {
		if c.Pod.UID == "bad" {
			assert.ErrorContains(t, c.Err, "boom")
			assert.ErrorAs(t, c.Err, new(*runtime.PanicError))
			assert.Equal(t, podworkers.Create, c.Type)
			assert.InDelta(t, 1.25, c.Backoff.Seconds(), 0.25)
			assert.False(t, c.Received.IsZero())
		}
	}
}

// denying is a wrapper around a Syncer that refuses pods for good.
type denying struct {
	podworkers.Syncer
	denied map[types.UID]bool
}

func (d denying) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod,
	status *runtime.PodStatus) (podworkers.Result, error) {
	if d.denied[pod.UID] {
		return podworkers.Result{}, fmt.Errorf("pod %s: %w", pod.Name, &runtime.TerminalError{Reason: "Denied",
			Message: "privileged"})
	}
	return d.Syncer.SyncPod(ctx, typ, pod, status)
}

func TestFailureForGood(t *testing.T) {
	var events []runtime.Event
	var past fake.History
	var m recorder
	opts := podworkers.Options{Observer: runtime.Observer{Record: past.Record, Measure: m.measure,
		Event: func(e runtime.Event) {
			if e.Pod.UID == "bad" { // that the other one waits is an event of another goroutine
				events = append(events, e)
			}
		}}}
	deny := func(n *fakeNode) (podworkers.Syncer, runtime.StatusCache) {
		return denying{n, map[types.UID]bool{"bad": true}}, n.cache
	}
	wrapped(t, opts, deny, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		var final v1.PodStatus
		n.terminating = func(_ context.Context, _ *v1.Pod, term podworkers.Termination) error {
			term.Status(&final)
			return nil
		}
		bad := staticPod("bad", "p")
		good := staticPod("good", "p") // starts when the other has finished
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: bad})
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: good})
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"0s terminating(30) bad", "0s terminated bad", "0s create good"}, n.took())
		assert.Equal(t, v1.PodStatus{Phase: v1.PodFailed, Reason: "Denied", Message: "privileged"}, final)
		s := w.SyncKnownPods([]*v1.Pod{bad, good})["bad"]
		assert.Equal(t, &runtime.TerminalError{Reason: "Denied", Message: "privileged"}, s.Failure)
		assert.True(t, s.Finished)
		assert.Equal(t, []runtime.Event{{Pod: runtime.RefOf(bad), Type: v1.EventTypeWarning, Reason: "Denied",
			Message: "privileged", Logged: true}}, events)
		var history []string
		for _, e := range past.Entries("bad") {
			history = append(history,
				strings.Join(strings.Fields(fmt.Sprint(e.Stage, " ", e.Kind, " ", e.Reason, " ", e.Message,
					" ", e.Duration)), " "))
		}
		assert.Equal(t, []string{"Decided Fail Denied privileged 0s", "Decided StopPod Failed 30s", "Done StopPod 0s"},
			history)
		var failures []*runtime.TerminalError
		for _, c := range m.calls {
			if c.Failure != nil {
				failures = append(failures, c.Failure)
				assert.ErrorIs(t, c.Err, c.Failure)
			}
		}
		assert.Equal(t, []*runtime.TerminalError{s.Failure}, failures)
	})
}

// The Status of a kill is a function of the caller. It may call the workers, as the calls of
// the syncer may, also if its reason is to be recorded.
func TestTheStatusOfAKillMayCallTheWorkers(t *testing.T) {
	var past fake.History
	n := &fakeNode{start: time.Now(), running: map[types.UID]bool{}, busy: map[types.UID]bool{}}
	n.cache = runtime.NewCache(n, runtime.CacheOptions{})
	w, err := podworkers.New(n, n.cache,
		podworkers.Options{Observer: runtime.Observer{Record: past.Record, NonBlocking: true}})
	require.NoError(t, err)
	pod := apiPod("u", "p")
	w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
	updated := make(chan struct{})
	go func() {
		defer close(updated)
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod,
			Kill: &podworkers.KillOptions{Status: func(s *v1.PodStatus) {
				s.Reason, s.Message = "Shutdown", fmt.Sprint(w.State("u").Known())
			}}})
	}()
	select {
	case <-updated:
	case <-time.After(10 * time.Second): // only in a failure
		t.Fatal("UpdatePod calls the Status of a kill with a lock held")
	}
	failed := past.Records("p", runtime.KindFail)
	require.Len(t, failed, 1)
	assert.Equal(t, "Shutdown true", failed[0].Reason+" "+failed[0].Message)
}

// A line about a failed call has the pod as a key, and not in the text of its error too.
func TestAFailedCallNamesThePodOnce(t *testing.T) {
	var mu sync.Mutex
	var logs []string
	log := funcr.New(func(_, args string) { mu.Lock(); defer mu.Unlock(); logs = append(logs, args) }, funcr.Options{})
	inBubble(t, podworkers.Options{Observer: runtime.Observer{Logger: log}},
		func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
			pod := apiPod("u", "web")
			ref := runtime.RefOf(pod).String()
			n.sync = func(context.Context, podworkers.UpdateType, *v1.Pod) (podworkers.Result, error) {
				return podworkers.Result{}, fmt.Errorf("pod %s: setting up its volumes: volume %q of pod %s: no space",
					ref,
					"data", ref)
			}
			w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
			time.Sleep(time.Millisecond)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, logs, 1)
			assert.Contains(t, logs[0], `"error"="setting up its volumes: volume \"data\": no space"`)
			assert.Equal(t, 1, strings.Count(logs[0], ref), logs[0])
		})
}

func TestAnUnreadableStatusIsAnEvent(t *testing.T) {
	var events []runtime.Event
	opts := podworkers.Options{
		Observer: runtime.Observer{Event: func(e runtime.Event) { events = append(events, e); panic("boom") }}}
	hide := func(n *fakeNode) (podworkers.Syncer, runtime.StatusCache) { return n, unreadable{n.cache} }
	wrapped(t, opts, hide, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("u", "p")})
		assert.Empty(t, n.took())
		require.Len(t, events, 1)
		assert.Equal(t, "FailedSync", events[0].Reason)
		assert.Equal(t, "error determining status: away", events[0].Message)
	})
}

type unreadable struct{ runtime.StatusCache }

func (unreadable) Newer(context.Context, runtime.PodRef, runtime.Mark) (*runtime.PodStatus, error) {
	return nil, errors.New("away")
}
