package podsync

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// Updated implements [podworkers.Syncer]. The volumes of a pod are brought to their latest content while SyncPod for it
// is under way: a pull or a hook may take minutes. At any other time the next SyncPod does that.
func (s *Syncer) Updated(pod *v1.Pod) {
	if len(pod.Spec.Volumes) == 0 {
		return
	}
	s.mu.Lock()
	st := s.pods[pod.UID]
	s.mu.Unlock()
	if st != nil {
		st.updated.Store(pod)
		s.refreshes.add(pod.UID)
	}
}

// Run implements [podworkers.Syncer]: it measures the storage of pods that have limits and evicts those that exceed
// one, and brings volumes up to date while a sync is under way. Without it no pod is evicted for its storage.
func (s *Syncer) Run(ctx context.Context, workers podworkers.Workers) error {
	var tasks sync.WaitGroup
	tasks.Go(func() { s.refreshes.run(ctx, s.refreshVolumes) })
	tasks.Go(func() { s.evictForStorage(ctx, workers) })
	tasks.Wait()
	return nil
}

// refreshVolumes brings the volumes of a pod to their latest content if its containers are being started.
func (s *Syncer) refreshVolumes(ctx context.Context, uid types.UID) {
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
	// Read with the lock: a SyncPod with a later version of the pod comes after this.
	pod := st.updated.Load()
	if pod == nil || pod.DeletionTimestamp != nil {
		return
	}
	ready, err := s.deps.Volumes.SetUp(ctx, pod, st.dir)
	if err != nil && ctx.Err() != nil {
		return
	}
	if err != nil {
		s.warnMounts(pod, ready, err, false)
	}
	st.countOutdated(err)
}

// parallelRefreshes is the number of pods that are refreshed at the same time. A refresh may
// take long if a volume of the pod does not answer. This many such pods hold up the refreshes of
// others, which then have the new content with their next sync.
const parallelRefreshes = 16

// refreshes are the pods to refresh.
type refreshes struct {
	mu sync.Mutex
	// due are the pods to be refreshed, and busy those whose refresh is under way.
	due, busy map[types.UID]struct{}
	// wake has room for one token: there is one if a pod in due may have become free to be
	// refreshed since it was taken.
	wake flow.Signal
}

func newRefreshes() *refreshes {
	return &refreshes{due: map[types.UID]struct{}{}, busy: map[types.UID]struct{}{}, wake: flow.NewSignal()}
}

// add requests the refresh of a pod. It does not block.
func (r *refreshes) add(uid types.UID) {
	r.mu.Lock()
	r.due[uid] = struct{}{}
	r.mu.Unlock()
	r.wake.Notify()
}

// run refreshes pods until ctx ends.
func (r *refreshes) run(ctx context.Context, refresh func(ctx context.Context, uid types.UID)) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		for _, uid := range r.take() {
			tasks.Go(func() {
				refresh(ctx, uid)
				r.mu.Lock()
				delete(r.busy, uid)
				r.mu.Unlock()
				r.wake.Notify()
			})
		}
	}
}

// take returns the pods whose refreshes are to begin.
func (r *refreshes) take() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var begin []types.UID
	for uid := range r.due {
		if _, under := r.busy[uid]; under {
			continue
		}
		if len(r.busy) == parallelRefreshes {
			break
		}
		delete(r.due, uid)
		r.busy[uid] = struct{}{}
		begin = append(begin, uid)
	}
	return begin
}
