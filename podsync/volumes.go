package podsync

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/backoff"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/volume"
)

// VolumeRefresher is an optional interface of a [podworkers.Syncer], found by
// [runtime.Optional].
type VolumeRefresher interface {
	// RefreshVolumes brings the volumes of a pod to their latest content while SyncPod
	// for it is under way: a pull or a hook may take minutes. At any other time it does nothing,
	// because the next SyncPod does that. desired returns the pod as it is to be. It is safe
	// for concurrent use.
	RefreshVolumes(ctx context.Context, uid types.UID, desired func(types.UID) (*v1.Pod, bool))
}

var _ VolumeRefresher = (*Syncer)(nil)

// RefreshVolumes implements [VolumeRefresher].
func (s *Syncer) RefreshVolumes(ctx context.Context, uid types.UID, desired func(types.UID) (*v1.Pod, bool)) {
	s.mu.Lock()
	st := s.pods[uid]
	s.mu.Unlock()
	if st == nil {
		return
	}
	st.volumes.Lock()
	defer st.volumes.Unlock()
	if st.starting == nil {
		return
	}
	// A volume that does not answer must not hold up the end of the pod: SyncPod waits for this.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(st.starting, cancel)()
	// Looked up with the lock: a SyncPod with a later version of the pod comes after this.
	pod, ok := desired(uid)
	if !ok || pod.DeletionTimestamp != nil {
		return
	}
	volumes, err := s.deps.Volumes.SetUp(ctx, pod, st.dir)
	if err != nil && ctx.Err() != nil {
		return
	}
	if err != nil {
		s.warnMounts(pod, volumes, err)
	}
	st.countOutdated(err)
}

// outdatedBackoff is the delay until volumes are set up again that are ready with an earlier
// content. The limit is kubelet's (goroutinemap/exponentialbackoff); its first delay is half a second.
var outdatedBackoff = backoff.Exponential{Min: time.Second, Max: 2*time.Minute + 2*time.Second}

// countOutdated counts the failures in a row to bring ready volumes up to date. st.volumes is held.
func (st *podState) countOutdated(err error) {
	if err == nil {
		st.outdated = 0
	} else {
		st.outdated++
	}
}

// setUpVolumes makes the volumes of the pod ready. If it returns no error, the containers
// can be started, and started must be called afterwards.
func (s *Syncer) setUpVolumes(ctx context.Context, st *podState, pod *v1.Pod) (map[string]runtime.Volume, error) {
	st.volumes.Lock()
	defer st.volumes.Unlock()
	volumes, err := s.deps.Volumes.SetUp(ctx, pod, st.dir)
	if err != nil && ctx.Err() != nil {
		return nil, err // it was cut off: no volume is at fault
	}
	if err != nil && (!s.warnMounts(pod, volumes, err) || !hasAll(volumes, pod)) {
		return nil, err
	}
	st.countOutdated(err)
	st.starting = ctx
	return volumes, nil
}

// started ends the time in which RefreshVolumes acts. It returns the time until the volumes are to
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
// false if the error is not one of single volumes.
func (s *Syncer) warnMounts(pod *v1.Pod, volumes map[string]runtime.Volume, err error) bool {
	failed := volume.FailedMounts(pod, volumes, err)
	for _, message := range failed[:min(len(failed), maxMountEvents)] {
		s.warn(pod, "FailedMount", message)
	}
	if n := len(failed) - maxMountEvents; n > 0 {
		s.warn(pod, "FailedMount", fmt.Sprintf("%d more volumes have failed", n))
	}
	if len(failed) == 0 {
		s.warn(pod, "FailedMount", err.Error())
	}
	return len(failed) > 0
}

// hasAll reports whether all volumes that containers of the pod use are ready.
func hasAll(volumes map[string]runtime.Volume, pod *v1.Pod) bool {
	for v := range runtime.UsedVolumes(&pod.Spec) {
		if _, ok := volumes[v.Name]; !ok {
			return false
		}
	}
	return true
}
