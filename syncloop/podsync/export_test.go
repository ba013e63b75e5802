package podsync

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// RefreshVolumes does what Run does after Updated.
func (s *Syncer) RefreshVolumes(ctx context.Context, pod *v1.Pod) {
	s.mu.Lock()
	st := s.pods[pod.UID]
	s.mu.Unlock()
	if st != nil {
		st.updated.Store(pod)
	}
	s.refreshVolumes(ctx, pod.UID)
}
