package runtimetest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// settle is the time in which a process sets up its signal handlers, if it does not
// report that it has.
const settle = 500 * time.Millisecond

func (e *env) startStubborn() *v1.Pod {
	e.Helper()
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Stubborn))
	e.startReady(pod)
	return pod
}

func (e *env) shortGrace() int64 { return int64(e.f.ShortGrace / time.Second) }

func testGracePeriod(e *env) {
	pod := e.startStubborn()
	began := time.Now()
	s := e.kill(pod, e.shortGrace())
	took := time.Since(began)
	assert.GreaterOrEqual(e, took, e.f.ShortGrace.Truncate(time.Second))
	assert.Less(e, took, e.f.ShortGrace+e.f.Timeout)
	assert.Equal(e, int32(137), s.Newest("main").ExitCode, "killed by SIGKILL")
}

func testGracePeriodZero(e *env) {
	pod := e.startStubborn()
	began := time.Now()
	s := e.kill(pod, 0)
	assert.Less(e, time.Since(began), e.f.Timeout)
	assert.Equal(e, int32(137), s.Newest("main").ExitCode)
}

func testGracePeriodShortened(e *env) {
	pod := e.startStubborn()
	began := time.Now()
	ctx, cancel := context.WithTimeout(e.ctx, time.Second)
	defer cancel()
	err := e.Runtime.KillPod(ctx, runtime.PodKill{Pod: pod, Status: e.status(pod), GracePeriod: new(int64(600))})
	require.ErrorIs(e, err, context.DeadlineExceeded)
	assert.True(e, running(e.status(pod), "main"))
	e.kill(pod, e.shortGrace())
	assert.Less(e, time.Since(began), time.Minute+e.f.Timeout, "the shorter grace period counts")
}

func testCancelledKill(e *env) {
	pod := e.startStubborn()
	ctx, cancel := context.WithCancelCause(e.ctx)
	done := make(chan error, 1)
	status := e.status(pod)
	go func() { done <- e.Runtime.KillPod(ctx, runtime.PodKill{Pod: pod, Status: status}) }()
	time.Sleep(settle)
	cancel(errors.New("asked to stop"))
	select {
	case err := <-done:
		require.ErrorIs(e, err, context.Canceled)
	case <-time.After(e.f.Timeout):
		require.Fail(e, "KillPod does not return when its context ends")
	}
	e.kill(pod, 0)
}

func testCancelled(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	status := e.start(pod)
	fresh := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	for name, call := range map[string]func() error{
		"ListPods":   func() error { _, err := e.Runtime.ListPods(ctx); return err },
		"InspectPod": func() error { _, err := e.Runtime.InspectPod(ctx, status.PodRef); return err },
		"SyncPod": func() error {
			_, err := e.syncWith(ctx, fresh, &runtime.PodStatus{PodRef: runtime.RefOf(fresh)})
			return err
		},
		"KillPod": func() error { return e.Runtime.KillPod(ctx, runtime.PodKill{Pod: pod, Status: status}) },
		"Exec": func() error {
			_, err := e.Runtime.Exec(ctx, status.Containers[0].ID, []string{"true"},
				0)
			return err
		},
		"RemoveContainer": func() error { return e.Runtime.RemoveContainer(ctx, status.Containers[0].ID) },
		"RemoveSandbox":   func() error { return e.Runtime.RemoveSandbox(ctx, status.Sandboxes[0].ID) },
		"Check":           func() error { return e.Runtime.Check(ctx) },
	} {
		began := time.Now()
		require.ErrorIs(e, call(), context.Canceled, name)
		assert.Less(e, time.Since(began), 5*time.Second, name)
	}
	assert.Equal(e, status.Containers, e.status(pod).Containers, "nothing was done")
	assert.Empty(e, e.status(fresh).Containers)
}
