package cri_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// restart returns a syncer of the same pod with a client that remembers nothing.
func (s *syncer) restart(svc *service) *syncer {
	next := newSyncer(s.t, svc.client(cri.Options{}), s.pod)
	next.dir = s.dir
	return next
}

// A postStart hook that the end of an agent has cut off is run by the next one.
func TestAPostStartHookThatWasCutOffIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		pod := podOf("a", "b")
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: preStopExec("hook").PreStop}
		s := newSyncer(t, svc.client(cri.Options{}), pod)
		cut := func(s *syncer, after time.Duration) {
			t.Helper()
			defer svc.Inject(fake.Fault{Call: "ExecSync", Delay: time.Hour})()
			req := s.request()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(after, cancel)
			_, err := s.rt.SyncPod(ctx, req)
			require.ErrorIs(t, err, context.Canceled)
		}
		cut(s, time.Second)
		require.Equal(t, runtime.ContainerRunning, s.status().Newest("a").State)
		cut(s.restart(svc), time.Second)
		svc.calls()
		svc.start = time.Now()

		s = s.restart(svc)
		s.mustSync()
		assert.Equal(t, []string{"ExecSync hook", "CreateContainer b/0", "StartContainer b"}, svc.calls(),
			"the hook of a comes before the start of b")
		s.mustSync()
		s = s.restart(svc)
		s.mustSync()
		assert.Empty(t, svc.calls(), "it has ended")

		svc.exit("a", 1)
		cut(s, time.Second)
		svc.exit("a", 1)
		svc.calls()
		svc.start = time.Now()
		s = s.restart(svc)
		time.Sleep(time.Minute)
		svc.start = time.Now()
		s.mustSync()
		assert.Equal(t, []string{"CreateContainer a/2", "StartContainer a", "ExecSync hook"}, svc.calls(),
			"the record was about another instance")
	})
}

func TestAnOwedPostStartHookThatFailsStopsTheContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		svc.Script(fake.Target{},
			fake.Behavior{Exec: func(ctx context.Context, _ []string) (runtime.ExecResult, error) {
				select {
				case <-time.After(10 * time.Second):
					return runtime.ExecResult{ExitCode: 1}, nil
				case <-ctx.Done():
					return runtime.ExecResult{}, errors.New("killed")
				}
			}})
		pod := podOf("a")
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: preStopExec("hook").PreStop}
		s := newSyncer(t, svc.client(cri.Options{}), pod)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.rt.SyncPod(ctx, s.request())
		require.Error(t, err)

		s = s.restart(svc)
		res, err := s.sync()
		require.Error(t, err)
		assert.Equal(t, "PostStartHookError", res.Waiting["a"].Reason)
		assert.True(t, res.Changed)
		assert.Equal(t, runtime.ContainerExited, s.status().Newest("a").State)
		assert.Contains(t, s.eventLines(), "spec.containers{a} FailedPostStartHook: PostStartHook failed")
	})
}

// A preStop hook that has ended is not run again by the next agent; one that was cut off is.
func TestAPreStopHookThatHasEndedIsNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		svc.Script(fake.Target{}, fake.Behavior{StopDelay: 20 * time.Second})
		pod := podOf("a")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(600))
		pod.Spec.Containers[0].Lifecycle = preStopExec("hook")
		s := running(t, svc, pod)
		kill := func(s *syncer, ctx context.Context) error {
			req := s.request()
			return s.rt.KillPod(ctx, runtime.PodKill{Pod: pod, Status: req.Status, Dir: req.Dir})
		}
		for _, hook := range []time.Duration{time.Hour, time.Second} {
			remove := svc.Inject(fake.Fault{Call: "ExecSync", Delay: hook})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			require.Error(t, kill(s, ctx))
			cancel()
			remove()
			s = s.restart(svc)
		}
		require.NoError(t, kill(s, t.Context()))
		hooks := 0
		for _, c := range svc.Calls(fake.Target{}) {
			if c.Method == "ExecSync" {
				hooks++
			}
		}
		assert.Equal(t, 2, hooks)
	})
}
