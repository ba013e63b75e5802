package cri_test

import (
	"context"
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

// lingering is how long a start that is under way may take after its context ends.
const lingering = 3 * time.Second

// What has begun to start is not cut off by the end of the context; what would come
// after it is not done.
func TestStartsAreNotCutOff(t *testing.T) {
	sandbox := []string{"RunPodSandbox web/0"}
	create := append(sandbox[:1:1], "CreateContainer a/0")
	start := append(create[:2:2], "StartContainer a")
	hook := append(start[:3:3], "2s ExecSync hook")
	for name, tt := range map[string]struct {
		at           string
		takes, after time.Duration
		calls        []string
		state        runtime.ContainerState
	}{
		"sandbox":       {"RunPodSandbox", 2 * time.Second, 2 * time.Second, sandbox, ""},
		"create":        {"CreateContainer", 2 * time.Second, 2 * time.Second, append(create[:2:2], "2s StartContainer a", "2s ExecSync hook"), runtime.ContainerRunning},
		"start":         {"StartContainer", 2 * time.Second, 2 * time.Second, hook, runtime.ContainerRunning},
		"hook":          {"ExecSync", 2 * time.Second, 2 * time.Second, append(start[:3:3], "ExecSync hook"), runtime.ContainerRunning},
		"too long":      {"StartContainer", time.Hour, time.Second + lingering, start, runtime.ContainerCreated},
		"too long hook": {"ExecSync", time.Hour, time.Second + lingering, append(start[:3:3], "ExecSync hook"), runtime.ContainerRunning},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc := newService(t, "app:1")
				svc.Inject(fake.Fault{Call: tt.at, Delay: tt.takes})
				pod := podOf("a", "b")
				pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: preStopExec("hook").PreStop}
				s := newSyncer(t, svc.client(cri.Options{}), pod)
				req := s.request()
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				began := time.Now()
				_, err := s.rt.SyncPod(ctx, req)
				require.ErrorIs(t, err, context.Canceled)
				assert.Equal(t, tt.after, time.Since(began))
				assert.Equal(t, tt.calls, svc.calls())
				for _, e := range s.eventLines() {
					assert.NotContains(t, e, "ailed")
				}
				if tt.state != "" {
					assert.Equal(t, tt.state, s.status().Newest("a").State)
				}
			})
		})
	}
}

// A deadline that has passed is told as one, also when what has begun took longer.
func TestStartsAtADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		svc.Inject(fake.Fault{Call: "RunPodSandbox", Delay: time.Hour})
		s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
		req := s.request()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := s.rt.SyncPod(ctx, req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second+lingering, time.Since(began))
		_, err = s.rt.SyncPod(ctx, req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second+lingering, time.Since(began))
		assert.Equal(t, []string{"RunPodSandbox web/0"}, svc.calls(), "nothing is begun after it")
	})
}

func TestStartsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		svc.Inject(fake.Fault{Call: "StartContainer", Delay: time.Hour})
		s := newSyncer(t, svc.client(cri.Options{CallTimeout: time.Minute}), podOf("a"))
		began := time.Now()
		_, err := s.sync()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Minute, time.Since(began))
	})
}
