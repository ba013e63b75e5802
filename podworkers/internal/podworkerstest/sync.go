package podworkerstest

import (
	"errors"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/podworkers/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

var errBroken = errors.New("broken")

func testLife(e *env) {
	e.start()
	pod := apiPod("a")
	assert.Equal(e, podworkers.State{}, e.w.State("a"))
	e.update(podworkers.Create, pod)
	assert.Equal(e, []string{"create"}, e.called("a"))
	s := e.w.State("a")
	assert.Equal(e, podworkers.PhaseSync, s.Phase)
	assert.Equal(e, "pod-a_default", s.FullName)
	assert.True(e, s.HasConfig)
	assert.False(e, s.Static || s.Waiting || s.Orphan || s.TerminationRequested() || s.StartedAt.IsZero())

	e.update(podworkers.Change, pod)
	assert.Equal(e, []string{"create", "change"}, e.called("a"))
	before := len(e.Calls("a"))
	e.update(podworkers.Sync, pod)
	e.pass()
	require.Greater(e, len(e.Calls("a")), before)
	assert.Equal(e, podworkers.Sync, e.last(fake.SyncPod, "a").Type)

	release := e.Hold(fake.SyncTerminatingPod, "a")
	e.kill(pod)
	assert.Equal(e, []string{"create", "change", "terminating 30…"}, e.called("a"))
	s = e.w.State("a")
	assert.Equal(e, podworkers.PhaseTerminating, s.Phase)
	assert.True(e, s.TerminationRequested() && s.CouldHaveRunningContainers())
	assert.EqualValues(e, 30, s.GracePeriod)
	release()
	assert.Equal(e, []string{"create", "change", "terminating 30", "terminated"}, e.called("a"))
	s = e.w.State("a")
	assert.True(e, s.Terminated() && s.Finished && !s.CouldHaveRunningContainers())
	assert.False(e, s.TerminatedAt.IsZero())

	e.update(podworkers.Change, pod)
	e.update(podworkers.Sync, pod)
	assert.Len(e, e.called("a"), 4, "no update but a Create starts a finished pod")
	assert.Empty(e, e.w.SyncKnownPods(nil))
	assert.Equal(e, podworkers.State{Synced: true}, e.w.State("a"), "the record is forgotten")
}

// testMergedUpdates gives many updates during a call. They must not block, and the
// latest spec counts.
func testMergedUpdates(e *env) {
	e.start()
	release := e.Hold(fake.SyncPod, "a")
	e.update(podworkers.Create, apiPod("a"))
	e.pass()
	for range 1000 {
		e.update(podworkers.Change, apiPod("a"))
	}
	latest := testpod.With(apiPod("a"), func(p *v1.Pod) { p.Generation = 7 })
	e.update(podworkers.Sync, latest)
	require.Equal(e, []string{"create…"}, e.called("a"))
	release()
	assert.Equal(e, []string{"create", "change"}, e.called("a"))
	assert.Same(e, latest, e.last(fake.SyncPod, "a").Spec)
}

// testFreshStatus checks that a call gets a status that was read after the last call
// that changed something or failed.
func testFreshStatus(e *env) {
	e.start()
	var after []runtime.Mark // drawn at the end of each call
	e.answers(func(c fake.Call) (r podworkers.Result, err error) {
		switch len(after) {
		case 0, 1:
			r.Changed = true
		case 2:
			err = errBroken
		}
		after = append(after, e.cache.Now())
		return r, err
	})
	e.update(podworkers.Create, apiPod("a"))
	e.pass()
	e.recover()
	calls := e.Calls("a")
	require.GreaterOrEqual(e, len(calls), 4, "a SyncPod that changed something is repeated at once")
	assert.Equal(e, calls[0].Began, calls[2].Began.Truncate(e.f.Within))
	for i := range 3 {
		assert.GreaterOrEqual(e, calls[i+1].Status.Mark, after[i], "the status of call %d", i+1)
	}
	e.answers(nil)
	e.kill(apiPod("a"))
	e.pass()
	terminating, terminated := e.last(fake.SyncTerminatingPod, "a"), e.last(fake.SyncTerminatedPod, "a")
	assert.Greater(e, terminated.Status.Mark, terminating.Status.Mark)
	assert.True(e, terminating.Status.Running())
	assert.False(e, terminated.Status.Running())
}

func testRetryAfter(e *env) {
	e.start()
	e.answers(func(fake.Call) (podworkers.Result, error) { return podworkers.Result{RetryAfter: 5 * time.Second}, nil })
	e.update(podworkers.Create, apiPod("a"))
	e.pass()
	calls := len(e.Calls("a"))
	time.Sleep(5 * time.Second)
	e.pass()
	assert.Greater(e, len(e.Calls("a")), calls)
}

// testFailedCalls has each method fail several times. The next phase begins when it has
// succeeded.
func testFailedCalls(e *env) {
	e.start()
	pod := apiPod("a")
	e.Fail(fake.SyncPod, "a", 3, errBroken)
	e.update(podworkers.Create, pod)
	e.pass()
	assert.Equal(e, errBroken, e.Calls("a")[0].Err)
	e.recover()
	assert.GreaterOrEqual(e, e.count(fake.SyncPod, "a"), 4)
	assert.Equal(e, podworkers.PhaseSync, e.w.State("a").Phase)

	e.Fail(fake.SyncTerminatingPod, "a", 3, errBroken)
	e.Fail(fake.SyncTerminatedPod, "a", 3, errBroken)
	e.kill(pod)
	e.pass()
	assert.Equal(e, podworkers.PhaseTerminating, e.w.State("a").Phase)
	assert.Zero(e, e.count(fake.SyncTerminatedPod, "a"))
	e.recover()
	e.recover()
	assert.Equal(e, 4, e.count(fake.SyncTerminatingPod, "a"))
	assert.Equal(e, 4, e.count(fake.SyncTerminatedPod, "a"))
	assert.True(e, e.w.State("a").Finished)
}

// testPanic has each method panic. It is a failed call of one pod.
func testPanic(e *env) {
	e.start()
	panicked := map[fake.Method]bool{}
	e.answers(func(c fake.Call) (podworkers.Result, error) {
		e.mu.Lock()
		first := c.Pod.UID == "a" && !panicked[c.Method]
		panicked[c.Method] = panicked[c.Method] || first
		e.mu.Unlock()
		if first {
			panic("a panic of the suite")
		}
		return podworkers.Result{}, nil
	})
	e.update(podworkers.Create, apiPod("a"))
	e.update(podworkers.Create, apiPod("b"))
	assert.Equal(e, []string{"create"}, e.called("b"))
	e.recover()
	assert.Equal(e, podworkers.PhaseSync, e.w.State("a").Phase)
	assert.Greater(e, e.count(fake.SyncPod, "a"), 1)
	e.kill(apiPod("a"))
	e.recover()
	assert.True(e, e.w.State("a").Finished)

	// So does a Done.
	e.w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: apiPod("b"),
		Kill: &podworkers.KillOptions{Done: func() { panic("a panic of the suite") }}})
	e.recover()
	assert.True(e, e.w.State("b").Finished)
}

// testUnreadableStatus has the cache fail. No call is made without a status, and the
// syncer misses nothing.
func testUnreadableStatus(e *env) {
	e.start()
	e.cache.fail(errBroken)
	e.update(podworkers.Create, apiPod("a"))
	e.kill(apiPod("b"))
	e.recover()
	assert.Empty(e, e.Calls(""))
	e.cache.fail(nil)
	e.recover()
	assert.Equal(e, []string{"create"}, e.called("a"))
	assert.Equal(e, []string{"terminated"}, e.called("b"))
}

// testHungCall has calls for one pod hang. Other pods go on, and State does not block.
func testHungCall(e *env) {
	e.start()
	release := e.Hold(fake.SyncPod, "a")
	e.update(podworkers.Create, apiPod("a"))
	e.pass()
	e.update(podworkers.Create, apiPod("b"))
	assert.Equal(e, []string{"create…"}, e.called("a"))
	e.kill(apiPod("b"))
	assert.Equal(e, []string{"create", "terminating 30", "terminated"}, e.called("b"))
	assert.Len(e, e.w.SyncKnownPods([]*v1.Pod{apiPod("a"), apiPod("b")}), 2)
	assert.Equal(e, podworkers.PhaseSync, e.w.State("a").Phase)
	release()
	synctest.Wait()
}
