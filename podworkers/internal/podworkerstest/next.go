package podworkerstest

import (
	"fmt"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/podworkers/fake"
)

// podUID makes a UID.
func podUID(v any) types.UID { return types.UID(fmt.Sprint(v)) }

func testNextIncarnation(e *env) {
	e.start()
	first, second := staticPod("a", "web"), staticPod("a", "web")
	e.update(podworkers.Create, first)
	e.pass()
	release := e.Hold(fake.SyncTerminatedPod, "a")
	e.kill(first)
	e.pass()
	e.update(podworkers.Create, first)
	e.update(podworkers.Change, second)
	assert.Equal(e, []string{"create", "terminating 30", "terminated…"}, e.called("a"))
	assert.True(e, e.w.State("a").RestartRequested)
	release()
	assert.Equal(e, []string{"create", "terminating 30", "terminated", "create"}, e.called("a"))
	assert.Same(e, second, e.last(fake.SyncPod, "a").Spec)
	s := e.w.State("a")
	assert.False(e, s.RestartRequested || s.TerminationRequested() || s.Finished)

	// One that has finished starts at once.
	e.kill(second)
	e.pass()
	assert.True(e, e.w.State("a").Finished)
	e.update(podworkers.Create, first)
	assert.Equal(e, []string{"create", "terminating 30", "terminated", "create", "terminating 30", "terminated",
		"create"}, e.called("a"))
}

// testNextIncarnationIsKilled has the next incarnation killed, or undesired, before it
// begins.
func testNextIncarnationIsKilled(e *env) {
	e.start()
	for _, uid := range []types.UID{"a", "b"} {
		pod, done := staticPod(uid, "web-"+string(uid)), 0
		e.update(podworkers.Create, pod)
		e.pass()
		release := e.Hold(fake.SyncTerminatingPod, uid)
		e.kill(pod)
		e.pass()
		e.update(podworkers.Create, pod)
		if uid == "a" {
			e.kill(pod, counting(&done))
		} else {
			e.w.SyncKnownPods(nil)
			done++
		}
		assert.False(e, e.w.State(uid).RestartRequested)
		release()
		assert.Equal(e, []string{"create", "terminating 30", "terminated"}, e.called(uid))
		assert.Equal(e, 1, done)
		assert.True(e, e.w.State(uid).Finished)
	}
}

func testNextIncarnationAfterFailure(e *env) {
	e.start()
	e.Fail(fake.SyncPod, "a", 1, errDenied)
	release := e.Hold(fake.SyncTerminatingPod, "a")
	e.update(podworkers.Create, staticPod("a", "web"))
	e.pass()
	assert.NotNil(e, e.w.State("a").Failure)
	e.update(podworkers.Create, staticPod("a", "web"))
	release()
	assert.Equal(e, []string{"!create", "terminating 30", "terminated", "create"}, e.called("a"))
	assert.Nil(e, e.w.State("a").Failure)
}

// testFullName has static pods of one full name, beside other pods.
func testFullName(e *env) {
	e.start()
	e.update(podworkers.Create, staticPod("a", "web"))
	e.pass()
	e.update(podworkers.Create, staticPod("b", "web"))
	e.update(podworkers.Create, staticPod("c", "web"))
	e.update(podworkers.Create, staticPod("other", "db"))
	api := apiPod("api")
	api.Name = "web"
	e.update(podworkers.Create, api)
	assert.Equal(e, []string{"create"}, e.called("other"))
	assert.Equal(e, []string{"create"}, e.called("api"), "an API server keeps the names apart")
	assert.Empty(e, e.called("b"))
	assert.True(e, e.w.State("b").Waiting)
	assert.False(e, e.w.State("a").Waiting)
	assert.Equal(e, types.UID("a"), e.predecessor("b"))
	assert.Empty(e, e.predecessor("a"))
	assert.Empty(e, e.predecessor("api"))
	assert.Empty(e, e.predecessor("unknown"))

	e.Fail(fake.SyncTerminatedPod, "a", 1, errBroken)
	e.kill(staticPod("a", "web"))
	e.pass()
	assert.Empty(e, e.called("b"), "the first is terminated, but has not finished")
	e.recover()
	assert.Equal(e, []string{"create"}, e.called("b"))
	assert.False(e, e.w.State("b").Waiting)
	assert.Empty(e, e.predecessor("b"))
	assert.Empty(e, e.called("c"), "one after the other")
	assert.Equal(e, types.UID("b"), e.predecessor("c"))
	e.kill(staticPod("b", "web"))
	assert.Equal(e, []string{"create"}, e.called("c"))
	assert.Empty(e, e.predecessor("c"))
}

func testKillWhileWaiting(e *env) {
	e.start()
	done := 0
	e.update(podworkers.Create, staticPod("a", "web"))
	e.pass()
	e.update(podworkers.Create, staticPod("b", "web"))
	e.update(podworkers.Create, staticPod("c", "web"))
	e.kill(staticPod("b", "web"), counting(&done))
	assert.Equal(e, []string{"terminated"}, e.called("b"))
	assert.Equal(e, 1, done)
	e.kill(staticPod("a", "web"))
	e.pass()
	assert.Zero(e, e.count(fake.SyncPod, "b"))
	assert.Equal(e, []string{"create"}, e.called("c"))
}

// testKillOfAnEarlierStart kills a pod that an earlier agent has started. Its full name
// is not free before it has ended.
func testKillOfAnEarlierStart(e *env) {
	e.runs("a", true)
	e.update(podworkers.Create, staticPod("holder", "web"))
	e.update(podworkers.Create, staticPod("a", "web"))
	e.kill(staticPod("a", "web"))
	e.update(podworkers.Create, staticPod("b", "web"))
	release := e.Hold(fake.SyncTerminatingPod, "a")
	e.start()
	e.kill(staticPod("holder", "web"))
	assert.Equal(e, []string{"terminating 30…"}, e.called("a"))
	assert.Empty(e, e.called("b"))
	release()
	assert.Equal(e, []string{"create"}, e.called("b"))
}

func testTerminatingByFullName(e *env) {
	e.start()
	e.update(podworkers.Create, staticPod("a", "web"))
	api := apiPod("api")
	e.update(podworkers.Create, api)
	e.pass()
	assert.False(e, e.w.TerminatingByFullName("web_default"))
	release := e.Hold(fake.SyncTerminatingPod, "")
	e.kill(staticPod("a", "web"))
	e.kill(api)
	e.pass()
	assert.True(e, e.w.TerminatingByFullName("web_default"))
	assert.False(e, e.w.TerminatingByFullName("pod-api_default"), "it is not static")
	assert.False(e, e.w.TerminatingByFullName("unknown_default"))
	release()
	e.pass()
	assert.False(e, e.w.TerminatingByFullName("web_default"))
}

func testOrphan(e *env) {
	e.start()
	done := 0
	e.runs("a", true)
	e.Fail(fake.SyncTerminatingOrphan, "a", 1, errBroken)
	e.w.UpdatePod(orphan("a", func() { done++ }))
	assert.Equal(e, []string{"!orphan"}, e.called("a"))
	assert.Nil(e, e.last(fake.SyncTerminatingOrphan, "a").Grace)
	s := e.w.State("a")
	assert.True(e, s.Orphan && !s.HasConfig && s.TerminationRequested())
	assert.Equal(e, 0, done)
	e.recover()
	assert.Equal(e, []string{"!orphan", "orphan"}, e.called("a"))
	assert.Equal(e, 1, done)
	assert.False(e, e.w.State("a").Known(), "it is forgotten at once")

	// A kill with a grace period hurries it.
	release := e.Hold(fake.SyncTerminatingOrphan, "b")
	e.w.UpdatePod(orphan("b", nil))
	e.pass()
	hurried := orphan("b", func() { done++ })
	hurried.Kill.GracePeriod = new(int64(0))
	e.w.UpdatePod(hurried)
	assert.Equal(e, []string{"!orphan", "orphan…"}, e.called("b"))
	assert.Equal(e, new(int64(1)), e.last(fake.SyncTerminatingOrphan, "b").Grace)
	release()
	e.pass()
	assert.Equal(e, 2, done)

	// A pod with a spec that is called an orphan is terminated like any other.
	e.update(podworkers.Create, apiPod("c"))
	e.pass()
	e.w.UpdatePod(orphan("c", nil))
	assert.Equal(e, []string{"create", "terminating 30", "terminated"}, e.called("c"))
}

// testPodAfterOrphan has pods come, and be killed, while an orphan of their UID ends.
func testPodAfterOrphan(e *env) {
	e.start()
	release := e.Hold(fake.SyncTerminatingOrphan, "")
	for _, uid := range []types.UID{"a", "b", "c"} {
		e.w.UpdatePod(orphan(uid, nil))
	}
	e.pass()
	done := 0
	e.update(podworkers.Create, apiPod("a"))
	e.update(podworkers.Change, apiPod("a"))
	e.kill(apiPod("b"), evicting, counting(&done))
	e.update(podworkers.Change, apiPod("b"))
	e.update(podworkers.Create, apiPod("c"))
	e.kill(apiPod("c"))
	for _, uid := range []types.UID{"a", "b", "c"} {
		assert.Equal(e, []string{"orphan…"}, e.called(uid))
	}
	assert.True(e, e.w.State("a").RestartRequested)
	assert.Equal(e, 0, done)
	release()
	assert.Equal(e, []string{"orphan", "create"}, e.called("a"))
	assert.Equal(e, []string{"orphan", "terminating 30", "terminated"}, e.called("b"))
	assert.Equal(e, []string{"orphan", "terminated"}, e.called("c"))
	assert.Equal(e, "Evicted", reason(e.last(fake.SyncTerminatingPod, "b")))
	assert.Equal(e, 1, done)
	time.Sleep(recovery)
	synctest.Wait()
	assert.Equal(e, podworkers.PhaseSync, e.w.SyncKnownPods([]*v1.Pod{apiPod("a")})["a"].Phase)
}
