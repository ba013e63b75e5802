package kubeletkit

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podsync"
)

// volumeUpdates brings the volumes of pods up to date whose sync is under way when
// something changes that the volumes contain. All other pods are synced for that.
type volumeUpdates struct {
	refresher podsync.VolumeRefresher
	desired   func(types.UID) (*v1.Pod, bool)

	mu  sync.Mutex
	due map[types.UID]struct{}
	// wake has room for one token: there is one if due has grown since it was taken.
	wake chan struct{}
}

func newVolumeUpdates(r podsync.VolumeRefresher, desired func(types.UID) (*v1.Pod, bool)) *volumeUpdates {
	return &volumeUpdates{refresher: r, desired: desired, due: map[types.UID]struct{}{}, wake: make(chan struct{}, 1)}
}

// note requests the update of a pod's volumes. It does not block.
func (u *volumeUpdates) note(pod *v1.Pod) {
	if pod == nil || len(pod.Spec.Volumes) == 0 {
		return
	}
	u.mu.Lock()
	u.due[pod.UID] = struct{}{}
	u.mu.Unlock()
	select {
	case u.wake <- struct{}{}:
	default: // the token that is there serves this pod, too
	}
}

// run updates volumes until ctx ends.
func (u *volumeUpdates) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.wake:
		}
		u.mu.Lock()
		due := u.due
		u.due = map[types.UID]struct{}{}
		u.mu.Unlock()
		for uid := range due {
			u.refresher.RefreshVolumes(ctx, uid, u.desired)
		}
	}
}
