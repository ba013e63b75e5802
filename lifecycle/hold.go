package lifecycle

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
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

// Hold keeps the containers of the pod that do not run from starting: Prepare returns the reason, such as that of [Wait], before
// any component is called, until release is called or the limit has passed. A second Hold of a pod replaces the first. The pod is
// synced again at the limit; who calls release requests a sync.
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

// reason returns why the pod must not start, and for how long, or nil.
func (h *holds) reason(uid types.UID) (err error, left time.Duration) {
	h.mu.Lock()
	held := h.byUID[uid]
	h.mu.Unlock()
	if held == nil {
		return nil, 0
	}
	if left = time.Until(held.until); left <= 0 {
		h.remove(uid, held)
		return nil, 0
	}
	return held.reason, left
}

func (h *holds) remove(uid types.UID, held *hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byUID[uid] == held {
		delete(h.byUID, uid)
	}
}
