package podworkerstest

import (
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/podworkers/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// testKillCancelsSync kills a pod during a SyncPod that hangs.
func testKillCancelsSync(e *env) {
	e.start()
	defer e.Hold(fake.SyncPod, "")()
	e.update(podworkers.Create, apiPod("a"))
	e.pass()
	e.update(podworkers.Change, apiPod("a"))
	assert.Equal(e, []string{"create…"}, e.called("a"), "an update cancels nothing")
	e.kill(apiPod("a"))
	assert.Equal(e, []string{"!create", "terminating 30", "terminated"}, e.called("a"))
	assert.ErrorIs(e, e.last(fake.SyncPod, "a").Err, podworkers.ErrTerminating)

	e.update(podworkers.Create, apiPod("b"))
	e.pass()
	e.update(podworkers.Change, testpod.With(apiPod("b"), testpod.Deleted(7)))
	assert.Equal(e, []string{"!create", "terminating 7", "terminated"}, e.called("b"))
	e.update(podworkers.Create, apiPod("c"))
	e.pass()
	e.w.SyncKnownPods(nil)
	assert.Equal(e, []string{"!create", "terminating 30", "terminated"}, e.called("c"))
}

func testKillIsNotUndone(e *env) {
	e.start()
	e.update(podworkers.Create, apiPod("a"))
	e.pass()
	e.Fail(fake.SyncTerminatingPod, "a", 2, errBroken)
	e.kill(apiPod("a"))
	e.update(podworkers.Change, apiPod("a"))
	e.pass()
	e.update(podworkers.Change, apiPod("a"))
	e.update(podworkers.Sync, apiPod("a"))
	e.w.SyncKnownPods([]*v1.Pod{apiPod("a")})
	e.recover()
	e.update(podworkers.Change, apiPod("a"))
	assert.Equal(e, 1, e.count(fake.SyncPod, "a"))
	assert.True(e, e.w.State("a").Finished)
}

// testGracePeriod checks which grace period a pod gets.
func testGracePeriod(e *env) {
	e.start()
	for i, tc := range []struct {
		pod  []testpod.Option
		kill []func(*podworkers.KillOptions)
		want int64
		why  string
	}{
		{nil, nil, 30, "that of the spec"},
		{[]testpod.Option{testpod.Grace(0)}, nil, 1, "1 at least"},
		{[]testpod.Option{testpod.Grace(5)}, []func(*podworkers.KillOptions){within(60)}, 60,
			"that of the kill, also if it is longer"},
		{nil, []func(*podworkers.KillOptions){within(-3)}, 1, "1 at least"},
		{[]testpod.Option{testpod.Deleted(10)}, []func(*podworkers.KillOptions){within(20)}, 10,
			"the shorter of deletion and kill"},
		{[]testpod.Option{testpod.Deleted(0)}, nil, 1, "1 at least"},
	} {
		pod := apiPod(podUID(i))
		e.update(podworkers.Create, pod)
		e.pass()
		e.kill(testpod.With(pod, tc.pod...), tc.kill...)
		e.pass()
		assert.Equal(e, &tc.want, e.last(fake.SyncTerminatingPod, pod.UID).Grace, "%s: case %d", tc.why, i)
	}
}

func testShorterGracePeriod(e *env) {
	e.start()
	e.update(podworkers.Create, apiPod("a"))
	e.pass()
	release := e.Hold(fake.SyncTerminatingPod, "a")
	e.kill(apiPod("a"), within(20))
	e.pass()
	e.kill(apiPod("a"), within(40))
	assert.Equal(e, []string{"create", "terminating 20…"}, e.called("a"), "a longer one changes nothing")
	e.kill(apiPod("a"), within(5))
	assert.Equal(e, []string{"create", "!terminating 20", "terminating 5…"}, e.called("a"))
	assert.ErrorIs(e, e.Calls("a")[len(e.Calls("a"))-2].Err, podworkers.ErrShortened)
	assert.EqualValues(e, 5, e.w.State("a").GracePeriod)
	time.Sleep(4 * time.Second)
	e.kill(apiPod("a"), within(3))
	assert.Equal(e, []string{"create", "!terminating 20", "terminating 5…"}, e.called("a"), "it would not end sooner")
	release()
	assert.Equal(e, []string{"create", "!terminating 20", "terminating 5", "terminated"}, e.called("a"))
}

// testLateEviction evicts a pod while it is being stopped.
func testLateEviction(e *env) {
	e.start()
	e.update(podworkers.Create, apiPod("a"))
	e.pass()
	release := e.Hold(fake.SyncTerminatingPod, "a")
	e.kill(apiPod("a"))
	e.pass()
	assert.False(e, e.last(fake.SyncTerminatingPod, "a").Evicted)
	e.kill(apiPod("a"), evicting)
	release()
	e.pass()
	last := e.last(fake.SyncTerminatingPod, "a")
	assert.True(e, last.Evicted)
	assert.Equal(e, "Evicted", reason(last))
	assert.True(e, e.w.State("a").Evicted)
	assert.True(e, e.w.State("a").Finished)
}

// testDone checks that each Done is called once, when nothing of the pod runs.
func testDone(e *env) {
	e.start()
	var first, second, late, unknown int
	e.update(podworkers.Create, apiPod("a"))
	release := e.Hold(fake.SyncTerminatingPod, "a")
	e.kill(apiPod("a"), counting(&first))
	e.kill(apiPod("a"), counting(&second), within(1))
	e.pass()
	assert.Equal(e, 0, first+second)
	e.Fail(fake.SyncTerminatedPod, "a", 1, errBroken)
	release()
	e.pass()
	assert.Equal(e, []int{1, 1}, []int{first, second}, "when the pod is terminated, not when it has finished")
	e.kill(apiPod("a"), counting(&late))
	assert.Equal(e, 1, late, "nothing of the pod runs any more")
	e.recover()
	e.kill(apiPod("b"), counting(&unknown))
	e.recover()
	assert.Equal(e, []int{1, 1, 1, 1}, []int{first, second, late, unknown})
}

// testKillBeforeStart kills pods before the first SyncPod: only if the runtime has
// something of the pod, or there is a status to report, is there something to stop.
func testKillBeforeStart(e *env) {
	for _, uid := range []string{"a", "b", "c"} {
		e.update(podworkers.Create, apiPod(podUID(uid)))
	}
	e.runs("b", true)
	e.kill(apiPod("a"))
	e.kill(apiPod("b"))
	e.kill(apiPod("c"), evicting)
	e.start()
	assert.Equal(e, []string{"terminated"}, e.called("a"))
	assert.Equal(e, []string{"terminating 30", "terminated"}, e.called("b"))
	assert.Equal(e, []string{"terminating 30", "terminated"}, e.called("c"))
}

// testEndsInAPI has pods end by what the API server has of them.
func testEndsInAPI(e *env) {
	e.start()
	for _, change := range []testpod.Option{testpod.Deleted(30), testpod.Phase(v1.PodFailed),
		testpod.Phase(v1.PodSucceeded)} {
		pod := apiPod(podUID(e.count(fake.SyncTerminatedPod, "")))
		e.update(podworkers.Create, pod)
		e.pass()
		e.update(podworkers.Change, testpod.With(pod, change))
		assert.Equal(e, []string{"create", "terminating 30", "terminated"}, e.called(pod.UID))
		assert.Equal(e, testpod.With(pod, change).DeletionTimestamp != nil, e.w.State(pod.UID).Deleted)
	}
	// A pod that comes in a final phase is not started.
	e.update(podworkers.Create, testpod.With(apiPod("a"), testpod.Phase(v1.PodFailed)))
	assert.Equal(e, []string{"terminated"}, e.called("a"))
	e.runs("b", true)
	e.update(podworkers.Create, testpod.With(apiPod("b"), testpod.Phase(v1.PodFailed)))
	assert.Equal(e, []string{"terminating 30", "terminated"}, e.called("b"))
}

func testEndsByItself(e *env) {
	e.start()
	e.answers(func(c fake.Call) (r podworkers.Result, err error) {
		r.Terminal = c.Type == podworkers.Change
		if c.Type == podworkers.Sync {
			r.Terminal, err = true, errBroken
		}
		return r, err
	})
	e.update(podworkers.Create, apiPod("a"))
	e.pass()
	e.update(podworkers.Sync, apiPod("a"))
	e.pass()
	assert.Equal(e, podworkers.PhaseSync, e.w.State("a").Phase, "Terminal does not count with an error")
	e.update(podworkers.Change, apiPod("a"))
	assert.Equal(e, []string{"create", "change", "terminating 30", "terminated"}, e.called("a"))
	s := e.w.State("a")
	assert.True(e, s.Finished)
	assert.False(e, s.Deleted)
	assert.Nil(e, s.Failure)
}

// errDenied is an error by which SyncPod fails its pod for good, among others.
var errDenied = fmt.Errorf("syncing: %w",
	errors.Join(errBroken, &runtime.TerminalError{Reason: "Denied", Message: "no"}))

func testFailureForGood(e *env) {
	e.start()
	e.Fail(fake.SyncPod, "a", 1, errDenied)
	e.Fail(fake.SyncTerminatingPod, "a", 1, errDenied) // just an error
	e.update(podworkers.Create, apiPod("a"))
	called := e.called("a")
	require.GreaterOrEqual(e, len(called), 2)
	assert.Equal(e, []string{"!create", "!terminating 30"}, called[:2], "its own grace period")
	e.update(podworkers.Change, apiPod("a"))
	e.recover()
	assert.Equal(e, 1, e.count(fake.SyncPod, "a"))
	last := e.last(fake.SyncTerminatingPod, "a")
	require.NotNil(e, last.Override)
	status := v1.PodStatus{Phase: v1.PodPending}
	last.Override(&status)
	assert.Equal(e, v1.PodStatus{Phase: v1.PodFailed, Reason: "Denied", Message: "no"}, status)
	s := e.w.SyncKnownPods([]*v1.Pod{apiPod("a")})["a"]
	assert.True(e, s.Finished)
	assert.False(e, s.Deleted)
	require.NotNil(e, s.Failure)
	assert.Equal(e, "Denied", s.Failure.Reason)
}

// testFailureForGoodAndKill has a pod fail for good and be killed at the same time, in
// every order. The reason that came first stays.
func testFailureForGoodAndKill(e *env) {
	e.start()
	for i, tc := range []struct {
		kill         []func(*podworkers.KillOptions)
		before, want string
	}{
		{nil, "sync", "Denied"},
		{[]func(*podworkers.KillOptions){evicting}, "sync", "Evicted"},
		{nil, "terminating", "Denied"},
		{[]func(*podworkers.KillOptions){evicting}, "terminating", "Denied"},
	} {
		uid := podUID(i)
		answer := make(chan error, 1) // of the SyncPod, whatever its context
		e.answers(func(c fake.Call) (podworkers.Result, error) {
			if c.Method == fake.SyncPod {
				return podworkers.Result{}, <-answer
			}
			return podworkers.Result{}, nil
		})
		release := e.Hold(fake.SyncTerminatingPod, uid)
		e.update(podworkers.Create, apiPod(uid))
		e.pass()
		done := 0
		kill := append(tc.kill, counting(&done))
		answered := func() { answer <- errDenied; close(answer) }
		if tc.before == "sync" {
			e.kill(apiPod(uid), kill...)
			answered()
		} else {
			answered()
			e.pass()
			e.kill(apiPod(uid), kill...)
		}
		e.pass()
		release()
		e.pass()
		assert.Equal(e, tc.want, reason(e.last(fake.SyncTerminatingPod, uid)), "case %d", i)
		assert.Equal(e, len(tc.kill) > 0, e.last(fake.SyncTerminatingPod, uid).Evicted, "case %d", i)
		s := e.w.State(uid)
		assert.Equal(e, tc.want == "Denied", s.Failure != nil, "case %d", i)
		assert.True(e, s.Finished)
		assert.Equal(e, 1, done)
	}
}
