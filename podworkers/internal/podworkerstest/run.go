package podworkerstest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/podworkers/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func testSyncKnownPods(e *env) {
	e.start()
	a, b := apiPod("a"), apiPod("b")
	e.update(podworkers.Create, a)
	e.update(podworkers.Create, b)
	e.kill(b)
	e.pass()
	assert.False(e, e.w.State("a").Synced)
	states := e.w.SyncKnownPods([]*v1.Pod{a, b, apiPod("c")})
	require.Len(e, states, 2, "a desired pod that is not known is missing")
	assert.Equal(e, podworkers.PhaseSync, states["a"].Phase)
	assert.True(e, states["b"].Finished, "a finished pod that is desired stays known")
	for uid, s := range states {
		assert.True(e, s.Synced)
		assert.False(e, s.Orphan)
		assert.Equal(e, s, e.w.State(uid))
	}
	assert.True(e, e.w.State("c").Synced)
	states = e.w.SyncKnownPods([]*v1.Pod{a})
	assert.Len(e, states, 1)
	assert.Equal(e, podworkers.PhaseSync, states["a"].Phase)
	assert.Equal(e, 0, e.count(fake.SyncTerminatingPod, "a"))
}

func testUndesiredPod(e *env) {
	e.start()
	e.update(podworkers.Create, apiPod("a"))
	e.pass()
	release := e.Hold(fake.SyncTerminatingPod, "a")
	s := e.w.SyncKnownPods(nil)["a"]
	assert.True(e, s.Orphan && s.Deleted && s.TerminationRequested())
	assert.Equal(e, []string{"create", "terminating 30…"}, e.called("a"))
	s = e.w.SyncKnownPods([]*v1.Pod{apiPod("a")})["a"]
	assert.False(e, s.Orphan)
	assert.True(e, s.TerminationRequested(), "desired again, it has to end all the same")
	release()
	e.pass()
	assert.True(e, e.w.State("a").Finished)
	assert.Empty(e, e.w.SyncKnownPods(nil))
}

// testUnknownPod gives updates for pods that are not known.
func testUnknownPod(e *env) {
	e.start()
	assert.True(e, e.w.State("a").CouldHaveRunningContainers(), "it may not have been delivered yet")
	e.update(podworkers.Sync, apiPod("a"))
	assert.Equal(e, []string{"create"}, e.called("a"), "the first call of an incarnation is a Create")
	e.kill(apiPod("b"))
	assert.Equal(e, []string{"terminated"}, e.called("b"))
	e.w.SyncKnownPods([]*v1.Pod{apiPod("a")})
	assert.False(e, e.w.State("c").CouldHaveRunningContainers())
}

// testOnlyKnown gives updates that are not to start a pod, and have an old spec.
func testOnlyKnown(e *env) {
	e.start()
	done := 0
	killed := func() *podworkers.KillOptions { return &podworkers.KillOptions{Done: func() { done++ }} }
	e.w.UpdatePod(podworkers.Update{Type: podworkers.Sync, Pod: apiPod("a"), OnlyKnown: true})
	e.w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: apiPod("a"), OnlyKnown: true, Kill: killed()})
	e.pass()
	assert.Empty(e, e.Calls(""), "nothing is started")
	assert.Equal(e, 1, done, "nothing runs")
	assert.Empty(e, e.w.SyncKnownPods(nil))

	newest := apiPod("a")
	e.update(podworkers.Create, newest)
	assert.Equal(e, []string{"create"}, e.called("a"))
	e.w.UpdatePod(podworkers.Update{Type: podworkers.Sync, Pod: apiPod("a"), OnlyKnown: true})
	e.pass()
	assert.Greater(e, e.count(fake.SyncPod, "a"), 1, "it is synced")
	assert.Same(e, newest, e.last(fake.SyncPod, "a").Spec)
	e.w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: apiPod("a"), OnlyKnown: true, Kill: killed()})
	e.pass()
	assert.True(e, e.w.State("a").Finished)
	assert.Same(e, newest, e.last(fake.SyncTerminatingPod, "a").Spec)
	assert.Equal(e, 2, done)
}

// testUpdated gives updates during a SyncPod. Updated gets the latest spec, also if an update with OnlyKnown has an
// older one.
func testUpdated(e *env) {
	e.start()
	first, second := apiPod("a"), apiPod("a")
	e.update(podworkers.Create, first)
	e.pass()
	e.update(podworkers.Sync, first)
	e.pass()
	assert.Empty(e, e.check.tookUpdated(), "no SyncPod is under way")
	defer e.Hold(fake.SyncPod, "a")()
	e.update(podworkers.Sync, first)
	e.pass()
	e.update(podworkers.Change, second)
	e.w.UpdatePod(podworkers.Update{Type: podworkers.Sync, Pod: first, OnlyKnown: true})
	e.w.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: first, OnlyKnown: true})
	e.pass()
	updated := e.check.tookUpdated()
	assert.Len(e, updated, 3)
	for _, pod := range updated {
		assert.True(e, pod == second, "Updated gets the latest spec")
	}
	e.update(podworkers.Change, testpod.With(second, testpod.Deleted(30)))
	e.pass()
	assert.Zero(e, len(e.check.tookUpdated()), "no SyncPod follows")
}

// testDrain gives updates after Drain. None begins an incarnation that is to run.
func testDrain(e *env) {
	e.start()
	e.update(podworkers.Create, apiPod("runs"))
	e.update(podworkers.Create, apiPod("restarts"))
	e.pass()
	assert.False(e, e.w.State("runs").Drained)
	release := e.Hold(fake.SyncTerminatingPod, "")
	e.kill(apiPod("restarts"))
	e.pass()
	e.w.Drain()
	assert.True(e, e.w.State("runs").Drained)
	assert.True(e, e.w.State("unknown").Drained)
	e.update(podworkers.Create, apiPod("restarts"))
	e.update(podworkers.Create, apiPod("new"))
	e.update(podworkers.Sync, apiPod("unknown"))
	e.update(podworkers.Change, apiPod("runs"))
	deleted := testpod.With(apiPod("deleted"), testpod.Deleted(30))
	e.update(podworkers.Create, deleted)
	release()
	e.pass()
	assert.Empty(e, e.Calls("new"))
	assert.Empty(e, e.Calls("unknown"))
	assert.Equal(e, []string{"create", "terminating 30", "terminated"}, e.called("restarts"))
	assert.Equal(e, []string{"create", "change"}, e.called("runs"), "what runs goes on")
	assert.Equal(e, []string{"terminated"}, e.called("deleted"), "it is only taken down")
	assert.Len(e, e.w.SyncKnownPods([]*v1.Pod{apiPod("runs"), apiPod("restarts"), apiPod("new"), deleted}), 3)
	e.update(podworkers.Create, apiPod("restarts"))
	e.kill(apiPod("runs"))
	assert.Equal(e, []string{"create", "change", "terminating 30", "terminated"}, e.called("runs"))
	assert.True(e, e.w.State("restarts").Finished, "it has finished, and is not started again")
}

// testDrainOfPodsToStart drains workers with pods whose start was requested and waits for the end of another one. None
// starts. Each is ended by a kill.
func testDrainOfPodsToStart(e *env) {
	again, former, successor := apiPod("again"), staticPod("former", "web"), staticPod("successor", "web")
	afterOrphan := apiPod("after-orphan")
	e.start()
	e.update(podworkers.Create, again)
	e.update(podworkers.Create, former)
	e.pass()
	release := e.Hold(fake.SyncTerminatingPod, "")
	releaseOrphan := e.Hold(fake.SyncTerminatingOrphan, "")
	e.kill(again)
	e.update(podworkers.Create, again)
	e.kill(former)
	e.update(podworkers.Create, successor)
	e.w.UpdatePod(orphan("after-orphan", nil))
	e.update(podworkers.Create, afterOrphan)
	e.pass()
	e.w.Drain()
	release()
	releaseOrphan()
	e.recover()
	assert.Equal(e, []string{"create", "terminating 30", "terminated"}, e.called("again"),
		"a restart that was requested")
	assert.Empty(e, e.called("successor"), "a pod that waits for another one of its name")
	assert.Equal(e, []string{"orphan"}, e.called("after-orphan"), "a pod that waits for an orphan of its UID")
	e.update(podworkers.Change, again)
	e.update(podworkers.Sync, successor)
	e.recover()
	assert.Len(e, e.called("again"), 3)
	assert.Empty(e, e.called("successor"))

	var done atomic.Int32
	for _, pod := range []*v1.Pod{again, successor, afterOrphan} {
		e.kill(pod, evicting, func(k *podworkers.KillOptions) { k.Done = func() { done.Add(1) } })
	}
	e.recover()
	assert.EqualValues(e, 3, done.Load())
	for _, pod := range []*v1.Pod{again, successor, afterOrphan} {
		last := e.last(fake.SyncTerminatingPod, pod.UID)
		assert.Equal(e, "Evicted", reason(last), "%s has the status of the kill", pod.UID)
		assert.True(e, e.w.State(pod.UID).Finished, pod.UID)
	}
	assert.Empty(e, e.w.SyncKnownPods(nil))
}

// testInvalidUpdate gives updates that the documentation of Update excludes.
func testInvalidUpdate(e *env) {
	e.start()
	mirror := apiPod("a")
	mirror.Annotations = map[string]string{podspec.AnnotationConfigMirror: "x"}
	done := 0
	for _, u := range []podworkers.Update{
		{},
		{Pod: apiPod("a")},
		{Type: podworkers.Kill, Kill: &podworkers.KillOptions{Done: func() { done++ }}},
		{Type: podworkers.Create, Pod: apiPod("")},
		{Type: podworkers.Create, Pod: mirror},
		{Type: podworkers.Create, Pod: apiPod("a"), OnlyKnown: true},
		{Type: podworkers.Sync, Orphan: &runtime.Pod{PodRef: runtime.RefOf(apiPod("a"))}},
		{Type: podworkers.Sync, Pod: apiPod("a"), Kill: &podworkers.KillOptions{Done: func() { done++ }}},
	} {
		e.w.UpdatePod(u)
	}
	e.pass()
	assert.Empty(e, e.Calls(""))
	assert.Equal(e, 2, done)
	assert.Empty(e, e.w.SyncKnownPods(nil))
}

func testBeforeRun(e *env) {
	e.update(podworkers.Create, apiPod("a"))
	e.update(podworkers.Change, apiPod("a"))
	e.runs("b", true)
	e.update(podworkers.Create, apiPod("b"))
	e.kill(apiPod("b"))
	assert.Equal(e, podworkers.PhaseSync, e.w.State("a").Phase)
	assert.True(e, e.w.State("b").TerminationRequested())
	e.pass()
	assert.Empty(e, e.Calls(""), "nothing is called before Run")
	e.start()
	assert.Equal(e, []string{"create"}, e.called("a"))
	assert.Equal(e, []string{"terminating 30", "terminated"}, e.called("b"))
}

// testRunJoins ends Run while calls are under way.
func testRunJoins(e *env) {
	e.start()
	finish := make(chan struct{})
	e.answers(func(c fake.Call) (podworkers.Result, error) {
		if c.Pod.UID == "slow" {
			<-finish // it ignores its context
		}
		return podworkers.Result{Changed: c.Pod.UID == "slow"}, nil
	})
	e.Hold(fake.SyncPod, "held")
	e.update(podworkers.Create, apiPod("slow"))
	e.update(podworkers.Create, apiPod("held"))
	e.update(podworkers.Create, apiPod("idle"))
	e.pass()
	e.stop()
	synctest.Wait()
	assert.ErrorIs(e, e.last(fake.SyncPod, "held").Err, context.Canceled, "the context of the call ends with Run")
	select {
	case <-e.ran:
		require.Fail(e, "Run returns while a call is under way")
	default:
	}
	close(finish)
	e.end()
	e.stop = nil

	calls := len(e.Calls(""))
	done := 0
	e.kill(apiPod("idle"), counting(&done))
	e.update(podworkers.Create, apiPod("new"))
	e.recover()
	assert.Len(e, e.Calls(""), calls, "calls after the end of Run")
	assert.Zero(e, done)
	assert.Zero(e, e.count(fake.SyncTerminatingPod, ""), "pods go on running")
}

func testRunTwice(e *env) {
	e.start()
	assert.ErrorIs(e, e.w.Run(e.Context()), runtime.ErrAlreadyRunning)
	e.end()
	e.stop = nil
	assert.ErrorIs(e, e.w.Run(e.Context()), runtime.ErrAlreadyRunning)
}

// testRandom gives random updates to a few pods whose calls have random outcomes. The
// checker tests the calls; at the end every kill must be done and every pod forgotten.
func testRandom(e *env) {
	seed := rand.Uint64()
	e.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) // guarded by e.mu in answers
	calm := false
	e.answers(func(c fake.Call) (r podworkers.Result, err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if calm {
			return r, nil
		}
		switch random.IntN(12) {
		case 0:
			err = errBroken
		case 1:
			panic("a panic of the suite")
		case 2:
			err = errDenied
		case 3:
			err = errors.Join(errBroken, context.Canceled)
		case 4:
			r.Terminal = true
		case 5, 6:
			r.Changed = true
		}
		return r, err
	})
	e.start()
	pick := func(n int) int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return random.IntN(n)
	}
	var pods []*v1.Pod
	for _, uid := range []types.UID{"a", "b", "c"} {
		pods = append(pods, staticPod(uid, "web"))
	}
	pods = append(pods, apiPod("d"), apiPod("e"))
	kills, done := 0, 0
	doneOnce := func() func() {
		kills++
		called := false
		return func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			assert.False(e, called, "a Done is called twice")
			called = true
			done++
		}
	}
	methods := []fake.Method{fake.SyncPod, fake.SyncTerminatingPod, fake.SyncTerminatingOrphan, fake.SyncTerminatedPod}
	release := func() {}
	for range 2000 {
		pod := pods[pick(len(pods))]
		switch pick(10) {
		case 0:
			k := &podworkers.KillOptions{Done: doneOnce(), Evict: pick(2) == 0}
			if pick(2) == 0 {
				k.GracePeriod = new(int64(pick(40)))
			}
			if pick(2) == 0 {
				k.Status = failing("Killed")
			}
			e.w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod, Kill: k})
		case 1:
			e.w.UpdatePod(orphan(pod.UID, doneOnce()))
		case 2:
			var desired []*v1.Pod
			for _, p := range pods {
				if pick(4) > 0 {
					desired = append(desired, p)
				}
			}
			e.w.SyncKnownPods(desired)
		case 3:
			release()
			release = e.Hold(methods[pick(len(methods))], pod.UID)
		case 4, 5:
			time.Sleep(time.Duration(pick(3000)) * time.Millisecond)
		case 6:
			synctest.Wait()
		default:
			e.update(podworkers.UpdateType(1+pick(3)), pod)
		}
	}
	release()
	e.mu.Lock()
	calm = true
	e.mu.Unlock()
	for range 10 { // a pod that waits for a full name starts before it is undesired, or not
		e.recover()
		e.w.SyncKnownPods(nil)
	}
	assert.Empty(e, e.w.SyncKnownPods(nil), "pods that do not end")
	assert.Equal(e, kills, done, "kills that were lost")
}
