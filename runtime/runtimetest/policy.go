package runtimetest

import (
	"context"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func testInitOrder(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	pod.Spec.InitContainers = []v1.Container{
		e.container("first", e.Exit(200*time.Millisecond, 0)), e.container("second", e.Exit(0, 0)),
	}
	s := e.start(pod)
	first, second, main := s.Newest("first"), s.Newest("second"), s.Newest("main")
	require.NotNil(e, first)
	require.NotNil(e, second)
	assert.Equal(e, runtime.ContainerExited, first.State)
	assert.Equal(e, runtime.ContainerExited, second.State)
	assert.False(e, second.CreatedAt.Before(first.FinishedAt), "the second is made when the first has succeeded")
	assert.False(e, main.CreatedAt.Before(second.FinishedAt), "the main one is made when the second has succeeded")
}

func testFailedInit(e *env) {
	pod := e.pod(v1.RestartPolicyNever, e.container("main", e.Sleep))
	pod.Spec.InitContainers = []v1.Container{e.container("first", e.Exit(0, 3)), e.container("second", e.Exit(0, 0))}
	e.drive(pod, "first has exited", func(s *runtime.PodStatus) bool { return exited(s, "first") })
	for range 3 {
		e.mustStep(pod)
	}
	s := e.status(pod)
	assert.Equal(e, int32(3), s.Newest("first").ExitCode)
	assert.Nil(e, s.Newest("second"))
	assert.Nil(e, s.Newest("main"))
}

func testSidecars(e *env) {
	always := v1.ContainerRestartPolicyAlways
	pod := e.pod(v1.RestartPolicyNever, e.container("main", e.Sleep))
	early, late := e.container("early", e.Sleep), e.container("late", e.Sleep)
	early.RestartPolicy, late.RestartPolicy = &always, &always
	pod.Spec.InitContainers = []v1.Container{early, e.container("prepare", e.Exit(0, 0)), late}
	s := e.start(pod)
	for _, order := range [][2]string{{"early", "prepare"}, {"prepare", "late"}, {"late", "main"}} {
		a, b := s.Newest(order[0]), s.Newest(order[1])
		require.NotNil(e, a, order[0])
		require.NotNil(e, b, order[1])
		assert.False(e, b.StartedAt.Before(a.StartedAt), "%s starts before %s", order[0], order[1])
	}
	assert.True(e, running(s, "early") && running(s, "late"), "sidecars go on: %s", describe(s))

	s = e.kill(pod)
	for _, order := range [][2]string{{"main", "late"}, {"late", "early"}} {
		assert.False(e, s.Newest(order[1]).FinishedAt.Before(s.Newest(order[0]).FinishedAt),
			"%s ends before %s", order[0], order[1])
	}
}

func testRestartPolicies(e *env) {
	for _, c := range []struct {
		policy  v1.RestartPolicy
		code    int32
		restart bool
	}{
		{v1.RestartPolicyAlways, 0, true},
		{v1.RestartPolicyAlways, 1, true},
		{v1.RestartPolicyOnFailure, 0, false},
		{v1.RestartPolicyOnFailure, 1, true},
		{v1.RestartPolicyNever, 1, false},
	} {
		pod := e.pod(c.policy, e.container("main", e.Exit(0, c.code)))
		first := e.drive(pod, "main has exited", func(s *runtime.PodStatus) bool { return exited(s, "main") })
		if c.restart {
			s := e.drive(pod, "main was started again", func(s *runtime.PodStatus) bool {
				return s.Newest("main") != nil && s.Newest("main").RestartCount == 1
			})
			assert.NotEqual(e, first.Newest("main").ID, s.Newest("main").ID)
			continue
		}
		for range 3 {
			res := e.mustStep(pod)
			assert.Zero(e, res.RetryAfter, "%s, code %d: it is not started again", c.policy, c.code)
		}
		assert.Equal(e, first.Newest("main").ID, e.status(pod).Newest("main").ID, "%s, code %d", c.policy, c.code)
	}
}

func testBackOff(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Exit(0, 1)))
	e.drive(pod, "the second instance has exited", func(s *runtime.PodStatus) bool {
		return exited(s, "main") && s.Newest("main").RestartCount == 1
	})
	res := e.mustStep(pod)
	assert.False(e, res.Changed)
	assert.Equal(e, "CrashLoopBackOff", res.Waiting["main"].Reason)
	assert.Positive(e, res.RetryAfter, "the end of the back-off")
	assert.Equal(e, int32(1), e.status(pod).Newest("main").RestartCount)
}

func testMissingImage(e *env) {
	bad := e.container("main", e.Sleep)
	bad.Image = e.MissingImage
	pod := e.pod(v1.RestartPolicyAlways, bad)
	res, err := e.step(pod)
	require.Error(e, err)
	assert.Equal(e, "ErrImagePull", res.Waiting["main"].Reason)
	assert.NotEmpty(e, res.Waiting["main"].Message)
	assert.Nil(e, e.status(pod).Newest("main"))

	// The back-off is that of the function.
	req := e.request(pod, e.status(pod))
	var want []string
	req.EnsureImage = func(_ context.Context, r runtime.ImageRequest) (*runtime.Image, error) {
		want = append(want, r.Container+" "+r.Image)
		return nil, &runtime.ImageError{Reason: runtime.ReasonImagePullBackOff, Message: "later",
			RetryAfter: time.Minute, BackingOff: true}
	}
	res, err = e.Runtime.SyncPod(e.ctx, req)
	require.NoError(e, err, "a back-off is not an error")
	assert.Equal(e, v1.ContainerStateWaiting{Reason: runtime.ReasonImagePullBackOff, Message: "later"},
		res.Waiting["main"])
	assert.Positive(e, res.RetryAfter)
	assert.Equal(e, []string{"main " + bad.Image}, want)
}

func testOneBadContainer(e *env) {
	bad := e.container("bad", e.Sleep)
	bad.Image = e.MissingImage
	pod := e.pod(v1.RestartPolicyAlways, bad, e.container("good", e.Sleep))
	res, err := e.step(pod)
	require.Error(e, err)
	assert.Contains(e, res.Waiting, "bad")
	assert.NotContains(e, res.Waiting, "good")
	s := e.status(pod)
	assert.True(e, running(s, "good"), "the other container is started: %s", describe(s))
}
