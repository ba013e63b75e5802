package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/underway"
)

// postponed are the pods that [Steps.Postpone] keeps from starting.
type postponed struct {
	mu    sync.Mutex
	byUID map[types.UID]*postponement
}

type postponement struct {
	reason error
	until  time.Time
}

// Postpone keeps the containers of the pod that do not run from starting: Prepare returns the reason, such as that of
// [Wait], before any component is called, until release is called or the limit has passed. A second call for a pod
// replaces the first. The pod is synced again at the limit; who calls release requests a sync.
func (s *Steps) Postpone(uid types.UID, reason error, limit time.Duration) (release func()) {
	if s == nil {
		return func() {}
	}
	p := &postponement{reason, time.Now().Add(limit)}
	s.postponed.mu.Lock()
	defer s.postponed.mu.Unlock()
	if s.postponed.byUID == nil {
		s.postponed.byUID = map[types.UID]*postponement{}
	}
	s.postponed.byUID[uid] = p
	return func() { s.postponed.remove(uid, p) }
}

// reason returns for how long the pod must not start, and why, or nil.
func (p *postponed) reason(uid types.UID) (left time.Duration, err error) {
	p.mu.Lock()
	found := p.byUID[uid]
	p.mu.Unlock()
	if found == nil {
		return 0, nil
	}
	if left = time.Until(found.until); left <= 0 {
		p.remove(uid, found)
		return 0, nil
	}
	return left, found.reason
}

func (p *postponed) remove(uid types.UID, found *postponement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byUID[uid] == found {
		delete(p.byUID, uid)
	}
}

// first are the pods that run when the agent starts. Components see them before they prepare other pods.
type first struct {
	until time.Time
	done  chan struct{} // closed when left is empty

	mu   sync.Mutex
	left map[types.UID]struct{}
}

// PrepareFirst delays Prepare of all pods except the given ones. These are the pods that run when the agent starts, so
// the components see what runs before they prepare other pods. The delay ends after the limit, or earlier when for each
// given pod one of these has happened:
//
//  1. Prepare was called. If the first Prepare of a given pod fails in a component, the components after it are called,
//     too.
//  2. Stopped, Ended, Gone or Refused was called.
//  3. forget was called. It is for a pod for which no step will be called soon, such as one that is not desired.
//
// PrepareFirst is called once, before the first pod is added.
func (s *Steps) PrepareFirst(pods []types.UID, limit time.Duration) (forget func(types.UID)) {
	if s == nil || len(s.prepare) == 0 || len(pods) == 0 {
		return func(types.UID) {}
	}
	f := &first{until: time.Now().Add(limit), done: make(chan struct{}), left: make(map[types.UID]struct{}, len(pods))}
	for _, uid := range pods {
		f.left[uid] = struct{}{}
	}
	s.first.Store(f)
	return s.seen
}

// awaitFirst waits until the components may prepare the pod. It reports whether the pod is one that runs and is
// prepared for the first time.
func (s *Steps) awaitFirst(ctx context.Context, uid types.UID) (isFirst bool, err error) {
	f := s.first.Load()
	if f == nil {
		return false, nil
	}
	f.mu.Lock()
	_, isFirst = f.left[uid]
	f.mu.Unlock()
	if isFirst {
		return true, nil
	}
	defer underway.Begin(ctx, "", "the step Prepare of the pods that run already", "").End()
	limit := time.NewTimer(time.Until(f.until))
	defer limit.Stop()
	select {
	case <-f.done:
		return false, nil
	case <-limit.C:
		s.first.CompareAndSwap(f, nil)
		return false, nil
	case <-ctx.Done():
		return false, fmt.Errorf("waiting until the pods that run already are prepared: %w", context.Cause(ctx))
	}
}

// seen notes that the components know the pod, or will not.
func (s *Steps) seen(uid types.UID) {
	f := s.first.Load()
	if f == nil {
		return
	}
	f.mu.Lock()
	_, was := f.left[uid]
	delete(f.left, uid)
	ended := was && len(f.left) == 0
	f.mu.Unlock()
	if ended {
		s.first.CompareAndSwap(f, nil)
		close(f.done)
	}
}
