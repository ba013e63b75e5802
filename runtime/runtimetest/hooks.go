package runtimetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func execHook(command []string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: command}}
}

func sleepHook(seconds int64) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: seconds}}
}

// testPostStart tests hooks by one that fails, since another has no effect that every runtime
// shows.
func testPostStart(e *env) {
	good, bad := e.container("good", e.Sleep), e.container("bad", e.Sleep)
	good.Lifecycle = &v1.Lifecycle{PostStart: execHook(e.ExecExit(0))}
	bad.Lifecycle = &v1.Lifecycle{PostStart: execHook(e.ExecExit(3))}
	pod := e.pod(v1.RestartPolicyNever, good, bad)
	res, err := e.step(pod)
	require.Error(e, err, "a postStart hook has failed")
	assert.NotEmpty(e, res.Waiting["bad"].Reason)
	assert.NotContains(e, res.Waiting, "good")
	s := e.wait(pod, "the container is stopped", func(s *runtime.PodStatus) bool { return exited(s, "bad") })
	assert.True(e, running(s, "good"), "the other goes on: %s", describe(s))
	assert.Zero(e, s.Newest("bad").RestartCount)
}

// startWithHook starts a pod whose container ends on SIGTERM, after the hook.
func (e *env) startWithHook(hook *v1.LifecycleHandler) *v1.Pod {
	e.Helper()
	c := e.container("main", e.Sleep)
	c.Lifecycle = &v1.Lifecycle{PreStop: hook}
	pod := e.pod(v1.RestartPolicyAlways, c)
	e.startReady(pod)
	return pod
}

func testPreStop(e *env) {
	pod := e.startWithHook(sleepHook(1))
	began := time.Now()
	e.kill(pod)
	assert.GreaterOrEqual(e, time.Since(began), time.Second, "the container is stopped when its preStop hook has ended")
}

func testPreStopWithoutSpec(e *env) {
	pod := e.startWithHook(sleepHook(1))
	began := time.Now()
	require.NoError(e, e.Runtime.KillPod(e.ctx, runtime.PodKill{Status: e.status(pod)}))
	assert.GreaterOrEqual(e, time.Since(began), time.Second, "the hook was recorded when the container was created")
	assert.False(e, e.status(pod).Running())
}

func testPreStopIsBounded(e *env) {
	pod := e.startWithHook(sleepHook(3600))
	began := time.Now()
	e.kill(pod, e.shortGrace())
	took := time.Since(began)
	assert.GreaterOrEqual(e, took, e.f.ShortGrace.Truncate(time.Second), "the hook may use the grace period")
	assert.Less(e, took, e.f.ShortGrace+e.f.Timeout, "the grace period includes the hook")

	pod = e.startWithHook(sleepHook(3600))
	began = time.Now()
	e.kill(pod, 0)
	assert.Less(e, time.Since(began), e.f.Timeout, "without a grace period there is no hook")
}

func testFailedPreStop(e *env) {
	pod := e.startWithHook(execHook(e.ExecExit(3)))
	began := time.Now()
	e.kill(pod)
	assert.Less(e, time.Since(began), 25*time.Second, "a hook that fails does not keep the container from its signal")
}
