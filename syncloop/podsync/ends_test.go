package podsync_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop/podsync"
)

// A pod that has ended does not exceed its deadline any more, also if the agent is
// restarted after it.
func TestAPodThatHasEndedHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		var events []runtime.Event
		s := newSyncer(t, w, podsync.Options{Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { events = append(events, e) }}})
		pod := makePod()
		pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](30) // it started a minute ago
		res, err := s.SyncPod(t.Context(), podworkers.Create, pod, observed(runtime.ContainerExited, 0))
		require.NoError(t, err)
		assert.True(t, res.Terminal)
		assert.Equal(t, v1.PodSucceeded, w.last().Phase)
		assert.Empty(t, events)

		res, err = s.SyncPod(t.Context(), podworkers.Create, pod, observed(runtime.ContainerRunning, 0))
		require.NoError(t, err)
		assert.True(t, res.Terminal)
		require.Len(t, events, 1)
		assert.Equal(t, "DeadlineExceeded", events[0].Reason)
		assert.Equal(t, v1.EventTypeNormal, events[0].Type, "as kubelet's")
	})
}

func TestAKillThatFailsCausesAnEvent(t *testing.T) {
	w := &world{killErr: errors.New("no answer")}
	var events []runtime.Event
	s := newSyncer(t, w, podsync.Options{Observer: runtime.Observer{NonBlocking: true,
		Event: func(e runtime.Event) { events = append(events, e) }}})
	ref := runtime.PodRef{UID: "o", Name: "orphan"}
	require.Error(t, s.SyncTerminatingPod(t.Context(), makePod(), nothing(), podworkers.Termination{}))
	require.Error(t, s.SyncTerminatingOrphan(t.Context(), &runtime.Pod{PodRef: ref}, nothing(), nil))
	assert.Equal(t, []runtime.Event{
		{Pod: runtime.RefOf(makePod()), Type: v1.EventTypeWarning, Reason: "FailedKillPod", Message: "error killing pod: no answer", Logged: true},
		{Pod: ref, Type: v1.EventTypeWarning, Reason: "FailedKillPod", Message: "error killing pod: no answer", Logged: true},
	}, events)

	ctx, cancel := context.WithCancel(t.Context())
	w.during = cancel
	require.Error(t, s.SyncTerminatingPod(ctx, makePod(), nothing(), podworkers.Termination{}))
	assert.Len(t, events, 2, "a kill that was cut off is made again")
}

// A container of a crash loop that is started again does not show its end for the moment
// until its new instance is seen: that would be a write to the API server for each restart.
func TestAStartShowsNoStateOfTheInstanceBefore(t *testing.T) {
	w := &world{
		sync: runtime.SyncResult{Waiting: map[string]v1.ContainerStateWaiting{"main": {Reason: "CrashLoopBackOff"}}}}
	s := newSyncer(t, w, podsync.Options{})
	pod := testpod.With(makePod(), testpod.Restart(v1.RestartPolicyAlways))
	dead := observed(runtime.ContainerExited, 1)
	_, err := s.SyncPod(t.Context(), podworkers.Create, pod, dead)
	require.NoError(t, err)
	require.NotNil(t, w.last().ContainerStatuses[0].State.Waiting)

	w.sync = runtime.SyncResult{Changed: true}
	_, err = s.SyncPod(t.Context(), podworkers.Sync, pod, dead)
	require.NoError(t, err)
	assert.NotNil(t, w.last().ContainerStatuses[0].State.Waiting)
	w.sync = runtime.SyncResult{}
	_, err = s.SyncPod(t.Context(), podworkers.Sync, pod, observed(runtime.ContainerRunning, 0))
	require.NoError(t, err)
	assert.NotNil(t, w.last().ContainerStatuses[0].State.Running)

	w.sync = runtime.SyncResult{Changed: true,
		Waiting: map[string]v1.ContainerStateWaiting{"main": {Reason: "ErrImagePull"}}}
	_, err = s.SyncPod(t.Context(), podworkers.Sync, pod, dead)
	require.NoError(t, err)
	assert.Equal(t, "ErrImagePull", w.last().ContainerStatuses[0].State.Waiting.Reason, "a new reason shows at once")
}
