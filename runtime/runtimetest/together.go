package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// manyPods is enough for calls to run at the same time.
const manyPods = 16

func testManyPods(e *env) {
	var pods []*v1.Pod
	for range manyPods {
		pods = append(pods, e.pod(v1.RestartPolicyAlways, e.container("a", e.Sleep), e.container("b", e.Sleep)))
	}
	g, ctx := errgroup.WithContext(e.ctx)
	for _, pod := range pods {
		g.Go(func() error { return e.startQuietly(ctx, pod) })
	}
	for range 4 { // at the same time
		g.Go(func() error { _, err := e.Runtime.ListPods(ctx); return err })
	}
	require.NoError(e, g.Wait())
	ids := map[runtime.ContainerID]bool{}
	for _, pod := range pods {
		p := e.listed(pod)
		require.NotNil(e, p)
		assert.True(e, p.Running())
		require.Len(e, p.Containers, 2)
		ids[p.Containers[0].ID], ids[p.Containers[1].ID] = true, true
	}
	assert.Len(e, ids, 2*manyPods, "each ID belongs to one container")

	g, ctx = errgroup.WithContext(e.ctx)
	for _, pod := range pods {
		status := e.status(pod)
		g.Go(func() error { return e.Runtime.KillPod(ctx, runtime.PodKill{Pod: pod, Status: status}) })
	}
	require.NoError(e, g.Wait())
	for _, pod := range pods {
		p := e.listed(pod)
		require.NotNil(e, p)
		assert.False(e, p.Running())
	}
}

// startQuietly is start for a goroutine, which must not end the test.
func (e *env) startQuietly(ctx context.Context, pod *v1.Pod) error {
	deadline := time.Now().Add(2 * e.f.Timeout)
	for {
		status, err := e.Runtime.InspectPod(ctx, runtime.RefOf(pod))
		if err != nil {
			return err
		}
		if running(status, "a") && running(status, "b") {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the containers do not run: %s", describe(status))
		}
		_, err = e.Runtime.SyncPod(ctx, runtime.PodSync{
			Pod: pod, Status: status, Host: e.Host, Dir: filepath.Join(e.Dir, string(pod.UID)),
		})
		if err != nil {
			return err
		}
		time.Sleep(poll)
	}
}

func testConcurrentRemoval(e *env) {
	pod := e.pod(v1.RestartPolicyNever, e.container("main", e.Exit(0, 0)))
	s := e.drive(pod, "main has exited", func(s *runtime.PodStatus) bool { return exited(s, "main") })
	g, ctx := errgroup.WithContext(e.ctx)
	for range 4 {
		g.Go(func() error { return e.Runtime.RemoveContainer(ctx, s.Containers[0].ID) })
		g.Go(func() error { return e.Runtime.KillPod(ctx, runtime.PodKill{Pod: pod, Status: s}) })
	}
	require.NoError(e, g.Wait())
	g, ctx = errgroup.WithContext(e.ctx)
	for range 4 {
		g.Go(func() error { return e.Runtime.RemoveSandbox(ctx, s.Sandboxes[0].ID) })
		g.Go(func() error { _, err := e.Runtime.InspectPod(ctx, s.PodRef); return err })
	}
	require.NoError(e, g.Wait())
	assert.Nil(e, e.listed(pod))
}

// testChangesSeen reads lists, as a PLEG that relists does: the state of an instance
// only goes forward.
func testChangesSeen(e *env) {
	pod := e.pod(v1.RestartPolicyNever, e.container("main", e.Exit(200*time.Millisecond, 5)))
	e.mustStep(pod)
	rank := map[runtime.ContainerState]int{runtime.ContainerCreated: 1, runtime.ContainerRunning: 2,
		runtime.ContainerExited: 3}
	last := 0
	deadline := time.Now().Add(e.f.Timeout)
	for last < 3 {
		p := e.listed(pod)
		require.NotNil(e, p)
		require.LessOrEqual(e, len(p.Containers), 1)
		if len(p.Containers) > 0 {
			now := rank[p.Containers[0].State]
			require.GreaterOrEqual(e, now, last, "an instance does not go back to %s", p.Containers[0].State)
			last = now
		}
		require.False(e, time.Now().After(deadline), "the exit was never listed")
		time.Sleep(poll)
	}
	assert.Equal(e, int32(5), e.status(pod).Newest("main").ExitCode, "the status is not older than the list")
}

// watch is Watch, or made of WatchEvents if that is nil.
func (e *env) watch(ctx context.Context, ready chan<- struct{}, changed func(types.UID)) error {
	source, ok := runtime.Optional[runtime.EventSource](e.Runtime)
	if e.Watch != nil || !ok {
		return e.Watch(ctx, ready, changed)
	}
	established := func() { close(ready) } // panics if it is called twice
	if e.Unannounced {
		established()
		established = nil
	}
	err := source.WatchEvents(ctx, established, func(h runtime.Hint) { changed(h.Pod.UID) })
	switch {
	case err == nil:
		return errors.New("WatchEvents returned nil")
	case ctx.Err() != nil:
		return nil
	default:
		return err
	}
}

func testEvents(e *env) {
	pod := e.pod(v1.RestartPolicyNever, e.container("main", e.Exit(500*time.Millisecond, 0)))
	ctx, cancel := context.WithCancel(e.ctx)
	hints := make(chan struct{}, 1) // when it is full, another hint adds nothing
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- e.watch(ctx, ready, func(uid types.UID) {
			if uid == pod.UID || uid == "" { // an event may be without a pod
				select {
				case hints <- struct{}{}:
				default:
				}
			}
		})
	}()
	defer func() {
		cancel()
		require.NoError(e, <-done)
	}()
	until := func(what string, cond func() bool) {
		e.Helper()
		late := time.NewTimer(e.f.Timeout)
		defer late.Stop()
		for hinted := false; !hinted || !cond(); {
			select {
			case <-hints:
				hinted = true
			case <-late.C:
				require.Fail(e, "no event", what)
			}
		}
	}
	select {
	case <-ready:
	case <-time.After(e.f.Timeout):
		require.Fail(e, "Watch does not become active")
	}
	e.mustStep(pod)
	until("the start", func() bool { s := e.status(pod); return running(s, "main") || exited(s, "main") })
	until("the exit", func() bool { return exited(e.status(pod), "main") })
	s := e.kill(pod)
	until("the end of the sandbox", func() bool { return !e.status(pod).Running() })
	require.NoError(e, e.Runtime.RemoveSandbox(e.ctx, s.Sandboxes[0].ID))
	until("the removal", func() bool { return e.listed(pod) == nil })
}

func testRestart(e *env) {
	pod := e.pod(v1.RestartPolicyNever,
		e.container("kept", e.Sleep), e.container("leaves", e.Exit(2*time.Second, 7)),
		e.container("left", e.Exit(0, 9)))
	e.start2(pod, "kept", "leaves", "left")
	before := e.wait(pod, "left has exited", func(s *runtime.PodStatus) bool { return exited(s, "left") })
	require.NoError(e, e.Restart(func() {
		time.Sleep(3 * time.Second)
		ctx, cancel := context.WithTimeout(e.ctx, 5*time.Second)
		defer cancel()
		require.Error(e, e.Runtime.Check(ctx), "a runtime that is stopped is not ready")
	}))
	deadline := time.Now().Add(e.f.Timeout)
	for e.Runtime.Check(e.ctx) != nil {
		require.False(e, time.Now().After(deadline), "the runtime does not come back: %v", e.Runtime.Check(e.ctx))
		time.Sleep(poll)
	}
	after := e.wait(pod, "leaves has exited", func(s *runtime.PodStatus) bool { return exited(s, "leaves") })
	assert.Equal(e, before.Newest("kept"), after.Newest("kept"), "a container that runs keeps running, and its "+
		"status is the same")
	assert.Equal(e, before.Newest("left"), after.Newest("left"), "so is that of a container that had ended")
	if e.LosesExits {
		assert.NotZero(e, after.Newest("leaves").ExitCode, "a container that ended in between did not succeed")
	} else {
		assert.Equal(e, int32(7), after.Newest("leaves").ExitCode, "the exit code of a container that ended in between")
	}
	assert.False(e, after.Newest("leaves").FinishedAt.Before(before.Newest("leaves").StartedAt))
	assert.Equal(e, before.ReadySandbox(), after.ReadySandbox())
	assert.False(e, e.mustStep(pod).Changed)
	e.kill(pod)
}

func testCheck(e *env) { require.NoError(e, e.Runtime.Check(e.ctx)) }

func testCheckNetwork(e *env) {
	e.NetworkDown(true)
	err := e.Runtime.Check(e.ctx)
	e.NetworkDown(false)
	require.ErrorIs(e, err, runtime.ErrNetworkNotReady)
	require.NotErrorIs(e, err, runtime.ErrUnavailable)
	require.NoError(e, e.Runtime.Check(e.ctx))
}
