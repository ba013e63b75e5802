package cri_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// ended brings up a pod whose only container has exited, so that a kill of it has
// nothing to do but to stop its sandbox. That takes a second, and fails with the
// error if it is not nil.
func ended(t *testing.T, svc *service, err error) (s *syncer, kill func(ctx context.Context) error) {
	t.Helper()
	s = running(t, svc, podOf("a"))
	svc.exit("a", 0)
	req := runtime.PodKill{Pod: s.pod, Status: s.status()}
	svc.calls()
	svc.Inject(fake.Fault{Call: "StopPodSandbox", Delay: time.Second, Err: err})
	return s, func(ctx context.Context) error { return s.rt.KillPod(ctx, req) }
}

// TestConcurrentStopsAreShared has several callers stop the same sandbox at once, as
// the end of a pod and the garbage collection may: the runtime sees one call.
func TestConcurrentStopsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		s, kill := ended(t, svc, nil)
		results := make(chan error, 4)
		for range 3 {
			go func() { results <- kill(t.Context()) }()
		}
		// A removal stops the sandbox first, and removes it when that has ended.
		go func() { results <- s.rt.RemoveSandbox(t.Context(), "s1") }()
		for range 4 {
			require.NoError(t, <-results)
		}
		assert.Equal(t, []string{"StopPodSandbox s1", "1s RemovePodSandbox s1"}, svc.calls())
	})
}

// TestSharedStopOutlivesItsCaller shows that a caller that gives up does not make the
// others fail.
func TestSharedStopOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		_, kill := ended(t, svc, nil)
		first, giveUp := context.WithCancel(t.Context())
		led, followed, left := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { led <- kill(first) }()
		synctest.Wait()
		go func() { followed <- kill(t.Context()) }()
		impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		go func() { left <- kill(impatient) }()

		err := <-left
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "pod default/web")
		giveUp()
		require.ErrorIs(t, <-led, context.Canceled)
		require.NoError(t, <-followed)
		assert.Equal(t, []string{"StopPodSandbox s1", "StopPodSandbox s1"}, svc.calls())
	})
}

// TestSharedFailureIsEverybodys shows that a failure of the runtime is not tried again
// by the callers that waited for it.
func TestSharedFailureIsEverybodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		_, kill := ended(t, svc, errors.New("no network"))
		results := make(chan error, 3)
		for range 3 {
			go func() { results <- kill(t.Context()) }()
		}
		for range 3 {
			assert.ErrorContains(t, <-results, "no network")
		}
		assert.Equal(t, []string{"StopPodSandbox s1"}, svc.calls())
	})
}
