package podsync_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop/podsync"
)

// Volumes are refreshed only while the runtime is called: at any other time the next sync
// does it.
func TestRefreshVolumes(t *testing.T) {
	w := &world{}
	s := newSyncer(t, w, podsync.Options{})
	pod := makePod()
	s.RefreshVolumes(t.Context(), pod)
	assert.Empty(t, w.calls, "the pod is not known")
	w.during = func() { s.RefreshVolumes(t.Context(), pod) }
	_, err := s.SyncPod(t.Context(), podworkers.Create, pod, nothing())
	require.NoError(t, err)
	assert.Equal(t, []string{"set up volumes", "sync web", "set up volumes"}, w.calls)

	w.calls = nil
	s.RefreshVolumes(t.Context(), pod)
	assert.Empty(t, w.calls, "no sync is under way")
	w.during = func() {
		s.RefreshVolumes(t.Context(),
			testpod.With(makePod(), func(pod *v1.Pod) { pod.DeletionTimestamp = new(metav1.Now()) }))
	}
	_, err = s.SyncPod(t.Context(), podworkers.Sync, pod, nothing())
	require.NoError(t, err)
	assert.Equal(t, []string{"set up volumes", "sync web"}, w.calls, "the pod is to be deleted")
}

// The end of a pod, which ends the context of SyncPod, does not wait for a volume that does not
// answer while it is refreshed.
func TestRefreshEndsWithTheSync(t *testing.T) {
	w := &world{}
	s := newSyncer(t, w, podsync.Options{})
	pod := makePod()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refresh, giveUp := context.WithTimeout(t.Context(), time.Minute) // of the whole agent
	defer giveUp()
	var done sync.WaitGroup
	w.during = func() {
		under := make(chan struct{})
		w.setUp = func(ctx context.Context) {
			close(under)
			<-ctx.Done()
		}
		done.Go(func() { s.RefreshVolumes(refresh, pod) })
		<-under
		cancel()
	}
	_, err := s.SyncPod(ctx, podworkers.Create, pod, nothing())
	done.Wait()
	require.NoError(t, err)
	assert.NoError(t, refresh.Err())
	assert.Equal(t, []string{"set up volumes", "sync web", "set up volumes"}, w.calls)
}

// A pod that is deleted does not wait until its volumes are unstaged. One that is not has no later step that would
// unstage them soon.
func TestVolumesThatStayStaged(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		w := &world{downErr: fmt.Errorf("%w: no answer", volume.ErrStaged)}
		s := newSyncer(t, w, podsync.Options{})
		pod := makePod()
		if deleted {
			pod.DeletionTimestamp = ptr.To(metav1.Now())
		}
		err := s.SyncTerminatedPod(t.Context(), pod, nothing())
		assert.Equal(t, deleted, err == nil, err)
		assert.Equal(t, deleted, slices.Contains(w.calls, "settle status"))
		w.downErr = errors.New("no answer")
		assert.ErrorContains(t, s.SyncTerminatedPod(t.Context(), pod, nothing()), "no answer")
	}
}

// A set-up that is cut off, as by the end of the pod, is not reported as a failure of its volumes.
func TestVolumesCutOff(t *testing.T) {
	w := &world{setUpErr: &volume.SetUpError{Volume: "v", Err: context.Canceled}}
	var events []runtime.Event
	s := newSyncer(t, w, podsync.Options{Observer: runtime.Observer{NonBlocking: true,
		Event: func(e runtime.Event) { events = append(events, e) }}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.SyncPod(ctx, podworkers.Create, testpod.With(makePod(), testpod.Volumes(v1.Volume{Name: "v"})),
		nothing())
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, events)
}

// A pod whose volumes are all there is started though the content of one is old. It does not
// need a volume that no container uses.
func TestVolumesWithOldContent(t *testing.T) {
	failed := &volume.SetUpError{Volume: "v", Err: &volume.OutdatedError{Err: errors.New(`configmap "c" not found`)}}
	for name, tc := range map[string]struct {
		err     error
		volumes map[string]runtime.Volume
		starts  bool
	}{
		"all are there":    {errors.Join(failed), map[string]runtime.Volume{"v": {}, "w": {}}, true},
		"one is missing":   {errors.Join(failed), map[string]runtime.Volume{"v": {}}, false},
		"none is at fault": {errors.New("the disk is full"), map[string]runtime.Volume{"v": {}, "w": {}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{setUpErr: tc.err, volumes: tc.volumes}
			var events []runtime.Event
			s := newSyncer(t, w, podsync.Options{Observer: runtime.Observer{NonBlocking: true,
				Event: func(e runtime.Event) { events = append(events, e) }}})
			pod := testpod.With(makePod(), testpod.Volumes(v1.Volume{Name: "v"}, v1.Volume{Name: "w"}),
				testpod.UnusedVolumes(v1.Volume{Name: "unused"}))
			res, err := s.SyncPod(t.Context(), podworkers.Create, pod, nothing())
			assert.Equal(t, tc.starts, err == nil)
			assert.Equal(t, tc.starts, res.RetryAfter > 0, "the back-off of the workers is for syncs that fail")
			require.Len(t, events, 1)
			assert.Equal(t, "FailedMount", events[0].Reason)
			if name != "none is at fault" {
				assert.Equal(t, `MountVolume.SetUp failed for volume "v" : configmap "c" not found`, events[0].Message)
			}
		})
	}
}

// A pod can have thousands of volumes that fail, at each sync. Too many events at once displace those of others.
func TestEventsOfManyVolumes(t *testing.T) {
	var errs []error
	for i := range 1000 {
		errs = append(errs, &volume.SetUpError{Volume: fmt.Sprintf("v%d", i), Err: errors.New("no")})
	}
	var events []runtime.Event
	s := newSyncer(t, &world{setUpErr: errors.Join(errs...)},
		podsync.Options{Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { events = append(events, e) }}})
	_, err := s.SyncPod(t.Context(), podworkers.Create, testpod.With(makePod(), testpod.Volumes(v1.Volume{Name: "v0"})),
		nothing())
	require.Error(t, err)
	require.Len(t, events, 21)
	assert.Equal(t, "980 more volumes have failed", events[20].Message)
}

// Volumes with an old content are set up again with a back-off, which ends when that succeeds.
func TestVolumesWithOldContentAreSetUpAgain(t *testing.T) {
	full := &volume.SetUpError{Volume: "v", Err: &volume.OutdatedError{Err: errors.New("no space left on device")}}
	w := &world{setUpErr: full, volumes: map[string]runtime.Volume{"v": {}}}
	s := newSyncer(t, w, podsync.Options{})
	pod := testpod.With(makePod(), testpod.Volumes(v1.Volume{Name: "v"}))
	retryAfter := func() time.Duration {
		res, err := s.SyncPod(t.Context(), podworkers.Sync, pod, nothing())
		require.NoError(t, err)
		return res.RetryAfter
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 122, 122} {
		assert.Equal(t, want*time.Second, retryAfter())
	}
	w.sync.RetryAfter = time.Minute
	assert.Equal(t, time.Minute, retryAfter(), "the runtime has something to do before")
	w.sync.RetryAfter, w.setUpErr = 0, nil
	assert.Zero(t, retryAfter())
	w.during = func() {
		w.setUpErr = full
		s.RefreshVolumes(t.Context(), pod)
	}
	assert.Equal(t, time.Second, retryAfter(), "an update during the sync has failed")
}

// While the network is not ready, no container is started. The files of those that run follow their
// sources all the same.
func TestVolumesWithoutNetwork(t *testing.T) {
	w := &world{}
	s := newSyncer(t, w, podsync.Options{NetworkReady: func() error { return runtime.ErrNetworkNotReady }})
	for state, want := range map[runtime.ContainerState][]string{runtime.ContainerRunning: {"set up volumes"},
		runtime.ContainerExited: nil} {
		w.calls = nil
		pod := testpod.With(makePod(), testpod.Restart(v1.RestartPolicyAlways))
		_, err := s.SyncPod(t.Context(), podworkers.Sync, pod, observed(state, 0))
		require.ErrorIs(t, err, runtime.ErrNetworkNotReady)
		assert.Equal(t, want, w.calls)
	}
}
