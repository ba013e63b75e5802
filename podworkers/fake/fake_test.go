package fake_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/podworkers/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = testpod.New("web", testpod.UID("1"))

type nothing struct{}

func (nothing) InspectPod(_ context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	return &runtime.PodStatus{PodRef: ref}, nil
}

func TestWithTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.NewSyncer()
		w, err := podworkers.New(s, runtime.NewCache(nothing{}, runtime.CacheOptions{}), podworkers.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()

		broken := errors.New("broken")
		s.Fail(fake.SyncPod, "1", 1, broken)
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: web})
		require.NoError(t, s.Until(ctx, func() bool { return len(s.Calls("1")) == 2 }))
		require.ErrorIs(t, s.Calls("1")[0].Err, broken)
		synctest.Wait()

		release := s.Hold(fake.SyncPod, "")
		w.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: web})
		require.NoError(t, s.Until(ctx, func() bool { return len(s.Calls("1")) == 3 }))
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: web,
			Kill: &podworkers.KillOptions{GracePeriod: new(int64(5))}})
		_, err = s.UntilCalled(ctx, fake.SyncTerminatedPod, "1")
		require.NoError(t, err)
		require.ErrorIs(t, s.Calls("1")[2].Err, podworkers.ErrTerminating, "the sync that hung was cancelled")
		release()
		release()
		assert.Equal(t, []string{
			"SyncPod create default/web", "SyncPod sync default/web", "SyncPod change default/web",
			"SyncTerminatingPod default/web 5s", "SyncTerminatedPod default/web",
		}, s.Transcript(""))
		assert.Zero(t, s.Overlaps())

		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		_, err = s.UntilCalled(short, fake.SyncTerminatingOrphan, "1")
		require.ErrorContains(t, err, "there is: SyncPod create default/web, ")
		cancel()
		require.NoError(t, <-done)
	})
}

func TestAnswersAndOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.NewSyncer()
		s.Answer(func(c fake.Call) (podworkers.Result, error) {
			return podworkers.Result{Terminal: true}, nil
		})
		res, err := s.SyncPod(t.Context(), podworkers.Sync, web, nil)
		require.NoError(t, err)
		assert.True(t, res.Terminal)

		release := s.Hold(fake.SyncTerminatingOrphan, "1")
		for range 2 {
			go func() {
				_ = s.SyncTerminatingOrphan(t.Context(), &runtime.Pod{PodRef: runtime.RefOf(web)}, nil, nil)
			}()
		}
		synctest.Wait()
		assert.Equal(t, 1, s.Overlaps())
		release()
		synctest.Wait()
		assert.False(t, s.Calls("1")[2].Ended.IsZero())
		assert.Empty(t, s.Calls("2"))
	})
}

func TestWorkers(t *testing.T) {
	w := fake.NewWorkers()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: web})
	assert.Equal(t, podworkers.PhaseSync, w.State("1").Phase)
	w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: web})
	w.UpdatePod(podworkers.Update{Type: podworkers.Kill,
		Orphan: &runtime.Pod{PodRef: runtime.PodRef{UID: "2", Namespace: "default", Name: "old"}}})
	assert.Equal(t, podworkers.PhaseTerminating, w.State("1").Phase)
	assert.Len(t, w.SyncKnownPods([]*v1.Pod{web}), 2)
	w.SetState("1", podworkers.State{Phase: podworkers.PhaseTerminated})
	assert.Len(t, w.SyncKnownPods([]*v1.Pod{web}), 2, "it is desired")
	assert.Len(t, w.SyncKnownPods(nil), 1)
	assert.Equal(t, podworkers.State{Synced: true}, w.State("1"))
	assert.Len(t, w.Updates("1"), 2)
	_, err := w.UntilCalled(ctx, fake.Run, "")
	require.NoError(t, err)
	assert.Equal(t, []string{"UpdatePod default/old kill orphan"}, w.Transcript("2"))
	cancel()
	require.NoError(t, <-done)
	require.ErrorIs(t, w.Run(ctx), runtime.ErrAlreadyRunning)
}

func Example() {
	s := fake.NewSyncer()
	ctx := context.Background()
	s.Fail(fake.SyncTerminatingPod, web.UID, 1, errors.New("a container still runs"))
	for range 2 { // what podworkers.Workers does
		fmt.Println(s.SyncTerminatingPod(ctx, web, nil, podworkers.Termination{GracePeriod: new(int64(30))}))
	}
	fmt.Println(s.Transcript(web.UID)[1])
	// Output:
	// a container still runs
	// <nil>
	// SyncTerminatingPod default/web 30s
}
