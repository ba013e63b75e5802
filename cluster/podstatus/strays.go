package podstatus

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// strayMin and strayMax bound the back-off of a deletion of a stray that fails.
const (
	strayMin = 250 * time.Millisecond
	strayMax = 10 * time.Second
)

// stray is an API object that may have to be deleted, and whose pod has no status here: a mirror pod
// without a static pod, or a pod with a deletion timestamp that does not reach the agent, or that it has not
// finished yet.
type stray struct {
	// checkAt is the time of the next check, failures the number of deletions in a row that have failed.
	checkAt  time.Time
	failures int
	// deleting is true while a call is under way.
	deleting bool
}

// WatchReceiver implements [status.Sink]. It also deletes API objects whose pods have no status.
func (s *Sink) WatchReceiver(ctx context.Context, changed func(uid types.UID)) {
	var calls sync.WaitGroup
	defer flow.Wait(&calls, flow.Late, func() {
		s.log.Error(nil, "The status sink cannot stop: a call of the API server has not returned although its "+
			"context has ended")
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	ended := outage.Ended(s.client)
	for ctx.Err() == nil {
		for uid := range s.takeRequests() {
			changed(uid)
		}
		due, next := s.dueStrays(time.Now())
		for _, uid := range due {
			calls.Go(func() { s.deleteStray(ctx, uid) })
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		case <-ended:
			ended = outage.Ended(s.client)
			s.outageEnded()
		}
	}
}

func (s *Sink) takeRequests() map[types.UID]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = map[types.UID]struct{}{}
	return requests
}

// outageEnded has everything tried again that may have failed. There is no call for what the server has.
func (s *Sink) outageEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.entries {
		s.request(uid)
	}
	for _, st := range s.strays {
		st.checkAt = time.Time{}
	}
}

// addStray has the API object checked, if it is a stray.
func (s *Sink) addStray(obj *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addStrayLocked(obj)
}

func (s *Sink) addStrayLocked(obj *v1.Pod) {
	if s.isStray(obj) && s.strays[obj.UID] == nil {
		s.strays[obj.UID] = &stray{checkAt: time.Now().Add(checkPeriod)} // a status of the pod may come
		s.wake.Notify()
	}
}

// isStray reports whether the API object is a stray. s.mu is held.
func (s *Sink) isStray(obj *v1.Pod) bool {
	switch {
	case onlyFinalizers(obj):
		return false
	case podspec.IsMirror(obj):
		return s.static[nameOf(obj)] == "" && s.opts.Orphaned != nil
	}
	return obj.DeletionTimestamp != nil && s.entryOf(obj) == nil
}

// dueStrays returns the strays to check now, and the time of the next check, zero if there is none.
func (s *Sink) dueStrays(now time.Time) (due []types.UID, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, st := range s.strays {
		switch {
		case st.deleting:
		case !st.checkAt.After(now):
			st.deleting = true
			due = append(due, uid)
		case next.IsZero() || st.checkAt.Before(next):
			next = st.checkAt
		}
	}
	return due, next
}

// deleteStray deletes the API object if nothing of its pod can run any more.
func (s *Sink) deleteStray(ctx context.Context, uid types.UID) {
	obj, ok := s.pods.ByUID(uid)
	s.mu.Lock()
	ok = ok && s.isStray(obj)
	s.mu.Unlock()
	var err error
	mayDelete := ok && (podspec.IsMirror(obj) && s.opts.Orphaned(obj.Namespace, obj.Name) || !podspec.IsMirror(obj) &&
		s.opts.Ended(uid))
	if mayDelete {
		switch err = s.remove(ctx, obj); {
		case err == nil:
			s.log.Info("Deleted an API object without a pod", "pod", nameOf(obj).String(), "uid", uid)
		case ctx.Err() == nil:
			s.log.Error(err, "An API object without a pod cannot be deleted, trying again")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake.Notify()
	st, after := s.strays[uid], checkPeriod
	switch {
	case st == nil: // the watch has removed it
		return
	case !ok || mayDelete && err == nil:
		delete(s.strays, uid)
		return
	case err != nil:
		st.failures++
		after = flow.Backoff{Min: strayMin, Max: strayMax}.After(st.failures)
	}
	st.deleting, st.checkAt = false, time.Now().Add(after)
}
