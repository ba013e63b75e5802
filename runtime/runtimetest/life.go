package runtimetest

import (
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func testStarts(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	before := e.status(pod)
	assert.Empty(e, before.Sandboxes)
	assert.Empty(e, before.Containers)
	assert.Nil(e, e.listed(pod))

	began := time.Now()
	res, err := e.syncWith(e.ctx, pod, before)
	require.NoError(e, err)
	assert.True(e, res.Changed, "the sync has started something")
	s := e.start(pod)

	require.Len(e, s.Sandboxes, 1)
	assert.NotNil(e, s.ReadySandbox())
	assert.Equal(e, e.HostNetwork, s.Sandboxes[0].HostNetwork)
	if e.HostNetwork {
		assert.Empty(e, s.IPs)
	} else {
		assert.NotEmpty(e, s.IPs)
	}
	require.Len(e, s.Containers, 1)
	c := s.Containers[0]
	assert.Equal(e, "main", c.Name)
	assert.NotEmpty(e, c.ID.Type)
	assert.NotEmpty(e, c.ID.ID)
	assert.Equal(e, s.Sandboxes[0].ID, c.SandboxID)
	assert.Equal(e, podspec.ContainerHash(&pod.Spec.Containers[0]), c.Hash, "the hash that the container was made from")
	assert.Zero(e, c.RestartCount)
	assert.False(e, c.CreatedAt.IsZero())
	assert.False(e, c.StartedAt.Before(c.CreatedAt), "started %s, created %s", c.StartedAt, c.CreatedAt)
	assert.WithinDuration(e, began, c.StartedAt, e.f.Timeout)
	assert.True(e, c.FinishedAt.IsZero())
	assert.NotEmpty(e, c.Image)

	listed := e.listed(pod)
	require.NotNil(e, listed, "a pod that runs is listed")
	assert.Equal(e, runtime.RefOf(pod), listed.PodRef)
	require.Len(e, listed.Containers, 1)
	assert.Equal(e, c.Container, listed.Containers[0], "list and status agree")
	require.Len(e, listed.Sandboxes, 1)
	assert.Equal(e, s.Sandboxes[0].Sandbox, listed.Sandboxes[0])
	assert.True(e, listed.Running())
}

func testSyncIsIdempotent(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("a", e.Sleep), e.container("b", e.Sleep))
	before := e.start(pod)
	for range 3 {
		res := e.mustStep(pod)
		assert.False(e, res.Changed, "there was nothing to do")
		assert.Empty(e, res.Waiting)
	}
	after := e.status(pod)
	assert.Equal(e, before.Sandboxes, after.Sandboxes)
	assert.Equal(e, before.Containers, after.Containers)
}

func testUnknown(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	nobody := runtime.ContainerID{Type: "runtimetest", ID: "0123456789abcdef"}
	require.NoError(e, e.Runtime.KillPod(e.ctx, runtime.PodKill{Pod: pod, Status: e.status(pod)}),
		"KillPod of a pod that never was")
	require.NoError(e, e.Runtime.RemoveContainer(e.ctx, nobody))
	require.NoError(e, e.Runtime.RemoveSandbox(e.ctx, nobody.ID))
	_, err := e.Runtime.Exec(e.ctx, nobody, []string{"true"}, time.Second)
	require.ErrorIs(e, err, runtime.ErrNotFound)
	assert.Empty(e, e.status(pod).Containers)
}

func testExitCodes(e *env) {
	codes := map[string]int32{"none": 0, "one": 1, "answer": 42, "last": 255}
	var containers []v1.Container
	for _, name := range []string{"none", "one", "answer", "last"} {
		containers = append(containers, e.container(name, e.Exit(0, codes[name])))
	}
	pod := e.pod(v1.RestartPolicyNever, containers...)
	s := e.drive(pod, "all have exited", func(s *runtime.PodStatus) bool {
		return exited(s, "none") && exited(s, "one") && exited(s, "answer") && exited(s, "last")
	})
	for name, code := range codes {
		c := s.Newest(name)
		assert.Equal(e, code, c.ExitCode, name)
		assert.False(e, c.StartedAt.IsZero(), name)
		// A command that ends at once may end before the runtime records its start.
		assert.False(e, c.FinishedAt.Before(c.StartedAt.Add(-time.Second)), "%s: finished %s, started %s", name,
			c.FinishedAt, c.StartedAt)
		want := "Error"
		if code == 0 {
			want = "Completed"
		}
		assert.Equal(e, want, c.Reason, name)
	}
	assert.NotNil(e, s.ReadySandbox(), "a pod's sandbox outlives its containers")
}

func testKill(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("a", e.Sleep), e.container("b", e.Sleep))
	e.startReady(pod)
	began := time.Now()
	s := e.kill(pod)
	assert.Less(e, time.Since(began), 25*time.Second, "a command that ends on SIGTERM does not use up its grace "+
		"period of 30 s")
	require.Len(e, s.Containers, 2, "KillPod removes nothing")
	for i := range s.Containers {
		c := &s.Containers[i]
		assert.Equal(e, runtime.ContainerExited, c.State, c.Name)
		assert.False(e, c.FinishedAt.IsZero(), c.Name)
	}
	require.Len(e, s.Sandboxes, 1)
	assert.Equal(e, runtime.SandboxNotReady, s.Sandboxes[0].State)
	listed := e.listed(pod)
	require.NotNil(e, listed, "a dead pod is listed until it is removed")
	assert.False(e, listed.Running())
}

func testKillTwice(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	running := e.start(pod)
	was := describe(running)
	first := e.kill(pod)
	second := e.kill(pod)
	assert.Equal(e, first.Containers, second.Containers, "the second kill changes nothing")
	// Also with the status before the first kill.
	require.NoError(e, e.Runtime.KillPod(e.ctx, runtime.PodKill{Pod: pod, Status: running}))
	assert.Equal(e, first.Containers, e.status(pod).Containers)
	assert.Equal(e, was, describe(running), "a status that was returned does not change")
}

func testKillOfOneContainer(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep), e.container("other", e.Sleep))
	s := e.start(pod)
	one := &runtime.PodStatus{PodRef: s.PodRef, Containers: []runtime.ContainerStatus{*s.Newest("main")}}
	require.NoError(e, e.Runtime.KillPod(e.ctx, runtime.PodKill{Pod: pod, Status: one}))
	after := e.status(pod)
	assert.False(e, running(after, "main"))
	assert.True(e, running(after, "other"))
	assert.Equal(e, runtime.SandboxReady, after.Sandboxes[0].State)
	e.kill(pod)
}

func testKillWithoutSpec(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	s := e.start(pod)
	require.NoError(e, e.Runtime.KillPod(e.ctx, runtime.PodKill{Status: s}))
	assert.False(e, e.status(pod).Running())
}

func testRemove(e *env) {
	pod := e.pod(v1.RestartPolicyNever, e.container("a", e.Exit(0, 0)), e.container("b", e.Sleep))
	e.start2(pod, "a", "b")
	s := e.wait(pod, "a has exited", func(s *runtime.PodStatus) bool { return exited(s, "a") })
	require.Error(e, e.Runtime.RemoveContainer(e.ctx, s.Newest("b").ID), "a container that runs is not removed")
	assert.True(e, running(e.status(pod), "b"), "and keeps running")

	for range 2 { // the second time it is gone
		require.NoError(e, e.Runtime.RemoveContainer(e.ctx, s.Newest("a").ID))
	}
	assert.Nil(e, e.status(pod).Newest("a"))

	s = e.kill(pod)
	for range 2 {
		require.NoError(e, e.Runtime.RemoveSandbox(e.ctx, s.Sandboxes[0].ID))
	}
	s = e.status(pod)
	assert.Empty(e, s.Containers, "a sandbox takes its containers along")
	assert.Empty(e, s.Sandboxes)
	assert.Nil(e, e.listed(pod))
}

// start2 syncs the pod until the named containers were started. They may have ended
// since.
func (e *env) start2(pod *v1.Pod, names ...string) *runtime.PodStatus {
	e.Helper()
	return e.drive(pod, "all containers were started", func(s *runtime.PodStatus) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !running(s, name) && !exited(s, name) })
	})
}

func testRemoveRunningSandbox(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	s := e.start(pod)
	require.NoError(e, e.Runtime.RemoveSandbox(e.ctx, s.Sandboxes[0].ID))
	s = e.status(pod)
	assert.Empty(e, s.Sandboxes)
	assert.Empty(e, s.Containers)
}

func testListStates(e *env) {
	pod := e.pod(v1.RestartPolicyNever, e.container("done", e.Exit(0, 0)), e.container("runs", e.Sleep))
	e.start2(pod, "done", "runs")
	e.wait(pod, "done has exited", func(s *runtime.PodStatus) bool { return exited(s, "done") })
	states := func() map[string]runtime.ContainerState {
		e.Helper()
		listed := e.listed(pod)
		require.NotNil(e, listed)
		require.Len(e, listed.Containers, 2)
		out := map[string]runtime.ContainerState{}
		for _, c := range listed.Containers {
			out[c.Name] = c.State
		}
		return out
	}
	assert.Equal(e, map[string]runtime.ContainerState{"done": runtime.ContainerExited,
		"runs": runtime.ContainerRunning}, states())
	e.kill(pod)
	assert.Equal(e, map[string]runtime.ContainerState{"done": runtime.ContainerExited, "runs": runtime.ContainerExited},
		states())
	assert.False(e, e.listed(pod).Running(), "no container runs and no sandbox is ready")
}

func testStaleStatus(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Exit(0, 1)))
	stale := e.drive(pod, "main has exited", func(s *runtime.PodStatus) bool { return exited(s, "main") })
	require.NoError(e, e.Runtime.RemoveSandbox(e.ctx, stale.Sandboxes[0].ID))
	// The status has a sandbox that is gone. KillPod has nothing to do. SyncPod may fail or make a new one, but it must
	// not break the syncs that follow.
	require.NoError(e, e.Runtime.KillPod(e.ctx, runtime.PodKill{Pod: pod, Status: stale}))
	_, _ = e.syncWith(e.ctx, pod, stale)
	pod.Spec.Containers[0].Command = e.Sleep
	s := e.start(pod)
	require.NotNil(e, s.ReadySandbox())
	n := 0
	for i := range s.Containers {
		if s.Containers[i].State == runtime.ContainerRunning {
			n++
		}
	}
	assert.Equal(e, 1, n, describe(s))
}

func testSandboxAgain(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("main", e.Sleep))
	before := e.start(pod)
	e.kill(pod)
	after := e.start(pod)
	require.NotNil(e, after.ReadySandbox())
	assert.NotEqual(e, before.Sandboxes[0].ID, after.Sandboxes[0].ID)
	assert.Greater(e, after.Sandboxes[0].Attempt, before.Sandboxes[0].Attempt)
	assert.Equal(e, after.Sandboxes[0].ID, after.Newest("main").SandboxID)
	assert.Equal(e, int32(1), after.Newest("main").RestartCount)
	assert.Same(e, &after.Containers[0], after.Newest("main"), "the newest comes first")
}

func testChangedContainer(e *env) {
	pod := e.pod(v1.RestartPolicyAlways, e.container("kept", e.Sleep), e.container("changed", e.Sleep))
	before := e.start(pod)
	pod = pod.DeepCopy()
	// The hash is made from name and image: the same image by another name.
	pod.Spec.Containers[1].Name = "renamed"
	after := e.drive(pod, "the new container runs, the old one does not", func(s *runtime.PodStatus) bool {
		return running(s, "renamed") && !running(s, "changed")
	})
	assert.Equal(e, before.Sandboxes[0].ID, after.ReadySandbox().ID)
	assert.Equal(e, before.Newest("kept").ID, after.Newest("kept").ID)
	assert.True(e, running(after, "kept"))
}
