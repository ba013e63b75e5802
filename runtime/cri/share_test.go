package cri

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/status"
)

// TestConcurrentStopsAreShared has several callers stop the same sandbox at once, as
// the end of a pod and the garbage collection may: the runtime sees one call.
func TestConcurrentStopsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService("app:1")
		s := running(t, svc, Options{}, podOf("a"))
		delayStops(svc, nil)
		results := make(chan error, 4)
		for range 3 {
			go func() { results <- s.rt.stopSandbox(t.Context(), "pod p", "s1") }()
		}
		// A removal stops the sandbox first, and removes it when that has ended.
		go func() { results <- s.rt.RemoveSandbox(t.Context(), "s1") }()
		for range 4 {
			require.NoError(t, <-results)
		}
		assert.Equal(t, []string{"StopPodSandbox s1", "1s RemovePodSandbox s1"}, svc.calls())
	})
}

// TestSharedStopOutlivesItsCaller shows that who gives up takes nobody along.
func TestSharedStopOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService("app:1")
		s := running(t, svc, Options{}, podOf("a"))
		delayStops(svc, nil)
		first, giveUp := context.WithCancel(t.Context())
		led, followed, left := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { led <- s.rt.stopSandbox(first, "pod p", "s1") }()
		synctest.Wait()
		go func() { followed <- s.rt.stopSandbox(t.Context(), "pod p", "s1") }()
		impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		go func() { left <- s.rt.stopSandbox(impatient, "pod p", "s1") }()

		err := <-left
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "pod p")
		giveUp()
		require.ErrorIs(t, <-led, context.Canceled)
		require.NoError(t, <-followed)
		assert.Equal(t, []string{"StopPodSandbox s1", "StopPodSandbox s1"}, svc.calls())
	})
}

// TestSharedFailureIsEverybodys shows that a failure of the runtime is not tried again
// by those who waited for it.
func TestSharedFailureIsEverybodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService("app:1")
		s := running(t, svc, Options{}, podOf("a"))
		delayStops(svc, errors.New("no network"))
		results := make(chan error, 3)
		for range 3 {
			go func() { results <- s.rt.stopSandbox(t.Context(), "pod p", "s1") }()
		}
		for range 3 {
			assert.ErrorContains(t, <-results, "no network")
		}
		assert.Equal(t, []string{"StopPodSandbox s1"}, svc.calls())
	})
}

// TestPanicEndsASharedRun shows that who recovers from a panic finds no run that never
// ends.
func TestPanicEndsASharedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shares
		leads, followed := make(chan struct{}), make(chan error, 1)
		go func() {
			defer func() { recover() }()
			_ = s.do(t.Context(), "pod p", "key", func() error { <-leads; panic("oops") })
		}()
		synctest.Wait()
		go func() { followed <- s.do(t.Context(), "pod p", "key", func() error { return nil }) }()
		synctest.Wait()
		close(leads)
		assert.NoError(t, <-followed)
		assert.NoError(t, s.do(t.Context(), "pod p", "key", func() error { return nil }))
	})
}

// delayStops has StopPodSandbox take a second, and then fail if err is not nil.
func delayStops(svc *service, err error) {
	svc.before = func(ctx context.Context, method, _ string) error {
		if method != "StopPodSandbox" {
			return nil
		}
		select {
		case <-time.After(time.Second):
			return err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}
