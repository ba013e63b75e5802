package kubeletkit

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podsync"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// volumeUpdates brings the volumes of pods up to date whose sync is under way when
// something changes that the volumes contain. All other pods are synced for that.
type volumeUpdates struct {
	refresher podsync.VolumeRefresher
	desired   func(types.UID) (*v1.Pod, bool)

	mu sync.Mutex
	// due are the pods to be updated, and busy those whose update is under way.
	due, busy map[types.UID]struct{}
	// wake has room for one token: there is one if a pod in due may have become free to be
	// updated since it was taken.
	wake chan struct{}
}

func newVolumeUpdates(r podsync.VolumeRefresher, desired func(types.UID) (*v1.Pod, bool)) *volumeUpdates {
	return &volumeUpdates{
		refresher: r, desired: desired, due: map[types.UID]struct{}{}, busy: map[types.UID]struct{}{}, wake: make(chan struct{}, 1),
	}
}

// note requests the update of a pod's volumes. It does not block.
func (u *volumeUpdates) note(pod *v1.Pod) {
	if pod == nil || len(pod.Spec.Volumes) == 0 {
		return
	}
	u.mu.Lock()
	u.due[pod.UID] = struct{}{}
	u.mu.Unlock()
	u.signal()
}

func (u *volumeUpdates) signal() {
	select {
	case u.wake <- struct{}{}:
	default: // the token that is there serves this pod, too
	}
}

// parallelUpdates is the number of pods that are updated at the same time. An update may
// take long if a volume of the pod does not answer. This many such pods hold up the updates of
// others, which then have the new content with their next sync.
const parallelUpdates = 16

// run updates volumes until ctx ends.
func (u *volumeUpdates) run(ctx context.Context) error {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.wake:
		}
		for _, uid := range u.take() {
			tasks.Go(func() {
				u.refresher.RefreshVolumes(ctx, uid, u.desired)
				u.mu.Lock()
				delete(u.busy, uid)
				u.mu.Unlock()
				u.signal()
			})
		}
	}
}

// take returns the pods whose updates are to begin.
func (u *volumeUpdates) take() []types.UID {
	u.mu.Lock()
	defer u.mu.Unlock()
	var begin []types.UID
	for uid := range u.due {
		if _, under := u.busy[uid]; under {
			continue
		}
		if len(u.busy) == parallelUpdates {
			break
		}
		delete(u.due, uid)
		u.busy[uid] = struct{}{}
		begin = append(begin, uid)
	}
	return begin
}

// updatingWorkers are workers that have the volumes of each pod updated that is to be synced.
type updatingWorkers struct {
	podworkers.Workers
	updates *volumeUpdates
}

// Unwrap returns the workers, for [runtime.Optional].
func (w updatingWorkers) Unwrap() any { return w.Workers }

// UpdatePod implements [podworkers.Workers].
func (w updatingWorkers) UpdatePod(u podworkers.Update) {
	w.Workers.UpdatePod(u)
	if u.Type == podworkers.Sync || u.Type == podworkers.Change {
		w.updates.note(u.Pod)
	}
}
