package cri

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// slowAt makes one call of the service take a while.
func slowAt(svc *service, at string, takes time.Duration) {
	svc.before = func(ctx context.Context, method, _ string) error {
		if method != at {
			return nil
		}
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// A call that starts something is not cut off by the end of its context; what would
// come after it is not done.
func TestStartsAreNotCutOff(t *testing.T) {
	for name, tt := range map[string]struct {
		at           string
		takes, after time.Duration
		calls        []string
		state        runtime.ContainerState
	}{
		"sandbox": {"RunPodSandbox", 2 * time.Second, 2 * time.Second, []string{"RunPodSandbox web/0"}, ""},
		"create": {"CreateContainer", 2 * time.Second, 2 * time.Second,
			[]string{"RunPodSandbox web/0", "CreateContainer a/0"}, runtime.ContainerCreated},
		"start": {"StartContainer", 2 * time.Second, 2 * time.Second,
			[]string{"RunPodSandbox web/0", "CreateContainer a/0", "StartContainer a"}, runtime.ContainerRunning},
		"too long": {"StartContainer", time.Hour, time.Second + lingering,
			[]string{"RunPodSandbox web/0", "CreateContainer a/0", "StartContainer a"}, runtime.ContainerCreated},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc := newService("app:1")
				slowAt(svc, tt.at, tt.takes)
				s := newSyncer(t, svc.runtime(Options{}), podOf("a", "b"))
				req := s.request()
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				began := time.Now()
				_, err := s.rt.SyncPod(ctx, req)
				require.ErrorIs(t, err, context.Canceled)
				assert.Equal(t, tt.after, time.Since(began))
				assert.Equal(t, tt.calls, svc.calls())
				if tt.state != "" {
					assert.Equal(t, tt.state, s.status().Newest("a").State)
				}
			})
		})
	}
}

func TestStartsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService("app:1")
		slowAt(svc, "StartContainer", time.Hour)
		s := newSyncer(t, svc.runtime(Options{CallTimeout: time.Minute}), podOf("a"))
		began := time.Now()
		_, err := s.sync()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Minute, time.Since(began))
	})
}

func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		longer, stop := linger(ctx, time.Second)
		began := time.Now()
		cancel()
		<-longer.Done()
		assert.Equal(t, time.Second, time.Since(began))
		stop()

		// Stopped before and while it lingers, it leaves nothing behind.
		ctx, cancel = context.WithCancel(t.Context())
		longer, stop = linger(ctx, time.Second)
		stop()
		cancel()
		assert.ErrorIs(t, longer.Err(), context.Canceled)
		ctx, cancel = context.WithCancel(t.Context())
		longer, stop = linger(ctx, time.Second)
		cancel()
		synctest.Wait()
		require.NoError(t, longer.Err())
		stop()
		assert.ErrorIs(t, longer.Err(), context.Canceled)
		assert.Equal(t, time.Second, time.Since(began))
	})
}
