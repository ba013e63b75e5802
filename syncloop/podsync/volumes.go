package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// volumes is the component that sets up the volumes of pods, and takes them down.
type volumes struct{ s *Syncer }

// Name implements [lifecycle.Component].
func (volumes) Name() string { return "volumes" }

// Prepare implements [lifecycle.Preparer].
func (v volumes) Prepare(ctx context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	ready, err := v.s.setUpVolumes(ctx, v.s.state(req.Pod.UID), req.Pod)
	return lifecycle.PrepareResponse{Volumes: ready}, err
}

// Ended implements [lifecycle.EndedHandler]. As in kubelet, a pod that is deleted does not wait until its volumes are
// unstaged. If that fails, Gone repeats it.
func (v volumes) Ended(ctx context.Context, req lifecycle.EndedRequest) error {
	ref := runtime.RefOf(req.Pod)
	err := v.s.deps.Volumes.TearDown(ctx, ref, req.Dir)
	if errors.Is(err, volume.ErrStaged) && req.Pod.DeletionTimestamp != nil {
		v.s.log.Info("The pod ends, and its volumes will be unstaged after that", "pod", ref, "err", err.Error())
		return nil
	}
	return err
}

// Gone implements [lifecycle.GoneHandler]. It removes the directory of the pod.
func (v volumes) Gone(ctx context.Context, req lifecycle.GoneRequest) error {
	return v.s.deps.Volumes.Remove(ctx, req.Pod, req.Dir)
}

// outdatedBackoff is the delay until volumes are set up again that are ready with an earlier
// content. The limit is kubelet's (goroutinemap/exponentialbackoff); its first delay is half a second.
var outdatedBackoff = flow.Backoff{Min: time.Second, Max: 2*time.Minute + 2*time.Second}

// countOutdated counts the failures in a row to bring ready volumes up to date. st.volumes is held.
func (st *podState) countOutdated(err error) {
	if err == nil {
		st.outdated = 0
	} else {
		st.outdated++
	}
}

// setUpVolumes makes the volumes of the pod ready. If it returns no error, the containers
// can be started, and started must be called when they are.
func (s *Syncer) setUpVolumes(ctx context.Context, st *podState, pod *v1.Pod) (map[string]runtime.Volume, error) {
	st.volumes.Lock()
	defer st.volumes.Unlock()
	ready, err := s.deps.Volumes.SetUp(ctx, pod, st.dir)
	if err != nil && ctx.Err() != nil {
		return nil, err // it was cut off: no volume is at fault
	}
	if err != nil && (!s.warnMounts(pod, ready, err, !hasAll(ready, pod)) || !hasAll(ready, pod)) {
		return nil, err
	}
	st.countOutdated(err)
	st.starting = ctx
	return ready, nil
}

// started ends the time in which refreshVolumes acts. It returns the time until the volumes are to
// be set up again though nothing else happens; 0 means never.
func (st *podState) started() (retryAfter time.Duration) {
	st.volumes.Lock()
	defer st.volumes.Unlock()
	st.starting = nil
	return outdatedBackoff.After(st.outdated)
}

// maxMountEvents is the number of events for the volumes of a pod in one sync. A pod can have any number
// of volumes, and an agent drops the events of others if too many come at once.
const maxMountEvents = 20

// warnMounts reports events for the volumes that are not ready or out of date. It returns
// false if the error is not one of single volumes. returned means that the sync returns the error.
func (s *Syncer) warnMounts(pod *v1.Pod, volumes map[string]runtime.Volume, err error, returned bool) bool {
	warn := func(message string) {
		s.opts.Event.Emit(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeWarning, Reason: "FailedMount",
			Message: message, Logged: returned})
	}
	failed := volume.FailedMounts(pod, volumes, err)
	for _, message := range failed[:min(len(failed), maxMountEvents)] {
		warn(message)
	}
	if n := len(failed) - maxMountEvents; n > 0 {
		warn(fmt.Sprintf("%d more volumes have failed", n))
	}
	if len(failed) == 0 {
		warn(err.Error())
	}
	return len(failed) > 0
}

// hasPolledVolumes reports whether the pod has volumes that a sync finds changed without an update of the pod, as the
// size of a claim: all but those of which a change is reported.
func hasPolledVolumes(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.ConfigMap == nil && v.Secret == nil && v.Projected == nil && v.DownwardAPI == nil &&
			v.EmptyDir == nil && v.HostPath == nil && v.Image == nil
	})
}

// hasAll reports whether all volumes that containers of the pod use are ready.
func hasAll(volumes map[string]runtime.Volume, pod *v1.Pod) bool {
	for v := range podspec.UsedVolumes(&pod.Spec) {
		if _, ok := volumes[v.Name]; !ok {
			return false
		}
	}
	return true
}
