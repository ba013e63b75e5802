package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/underway"
)

// holds are the pods that [Steps.Hold] keeps from starting.
type holds struct {
	mu    sync.Mutex
	byUID map[types.UID]*hold
}

type hold struct {
	reason error
	until  time.Time
}

// Hold keeps the containers of the pod that do not run from starting: Prepare returns the reason, such as that of
// [Wait], before any component is called, until release is called or the limit has passed. A second Hold of a pod
// replaces the first. The pod is synced again at the limit; who calls release requests a sync.
func (s *Steps) Hold(uid types.UID, reason error, limit time.Duration) (release func()) {
	if s == nil {
		return func() {}
	}
	h := &hold{reason, time.Now().Add(limit)}
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	if s.holds.byUID == nil {
		s.holds.byUID = map[types.UID]*hold{}
	}
	s.holds.byUID[uid] = h
	return func() { s.holds.remove(uid, h) }
}

// reason returns for how long the pod must not start, and why, or nil.
func (h *holds) reason(uid types.UID) (left time.Duration, err error) {
	h.mu.Lock()
	held := h.byUID[uid]
	h.mu.Unlock()
	if held == nil {
		return 0, nil
	}
	if left = time.Until(held.until); left <= 0 {
		h.remove(uid, held)
		return 0, nil
	}
	return left, held.reason
}

func (h *holds) remove(uid types.UID, held *hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byUID[uid] == held {
		delete(h.byUID, uid)
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
