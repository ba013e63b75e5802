package syncloop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// parallelRemovals is the number of removals that are under way at the same time, beside those that take longer than
// removalLate: a volume that does not answer delays no other pod.
const parallelRemovals = 16

// removalLate is the time after which a removal is logged, and another one begins beside it.
const removalLate = 5 * time.Second

// removalBackoff is the time from a removal that has failed to the next one of the pod. Kubelet repeats the unmount of
// a volume as rarely.
var removalBackoff = flow.Backoff{Min: time.Second, Max: 2 * time.Minute}

// removals are the calls of the step Gone. Their pods have no worker. Each call is made in a goroutine of its own, and
// its outcome is collected by the goroutine of the handler.
type removals struct {
	byUID map[types.UID]*removal // begun and not collected
	// failed has the pods whose last removal has failed.
	failed map[types.UID]failedRemoval
	// slots has a value for each removal that counts for parallelRemovals.
	slots chan struct{}
	tasks sync.WaitGroup
}

func newRemovals() removals {
	return removals{byUID: map[types.UID]*removal{}, failed: map[types.UID]failedRemoval{},
		slots: make(chan struct{}, parallelRemovals)}
}

// removal removes what one pod has left. done is closed when err is set.
type removal struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (r *removal) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// failedRemoval is a removal that is repeated.
type failedRemoval struct {
	failures int // in a row
	retryAt  time.Time
	text     string // of the error that was logged
}

// lostAndFound is a directory of the file system ext4, and no pod's, if the pods have a file system
// of their own.
const lostAndFound = "lost+found"

// begin begins a removal. late is called if it takes longer than removalLate.
func (r *removals) begin(ctx context.Context, uid types.UID, remove func(ctx context.Context) error, late func()) {
	ctx, cancel := context.WithCancel(ctx)
	begun := &removal{cancel: cancel, done: make(chan struct{})}
	r.byUID[uid] = begun
	r.tasks.Go(func() {
		defer close(begun.done)
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			begun.err = context.Cause(ctx)
			return
		}
		begun.err = r.call(ctx, remove, late)
	})
}

// call calls remove, and gives the slot back when that has returned, or takes longer than removalLate.
func (r *removals) call(ctx context.Context, remove func(ctx context.Context) error, late func()) error {
	returned, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		timer := time.NewTimer(removalLate)
		defer timer.Stop()
		select {
		case <-returned:
		case <-timer.C:
			late()
		}
		<-r.slots
	}()
	err := runtime.Recover(func() error { return remove(ctx) })
	close(returned)
	<-watched
	return err
}

// due reports whether a removal for the pod may begin.
func (r *removals) due(uid types.UID, now time.Time) bool {
	return r.byUID[uid] == nil && !now.Before(r.failed[uid].retryAt)
}

// removeGone begins the step Gone for the pods whose end was reported, and for those of which only a directory is left
// (kubelet: cleanupOrphanedPodDirs). It waits for none: a later cleanup collects the outcomes.
func (h *PodHandler) removeGone(ctx context.Context, alive func(types.UID) bool) error {
	due, err := h.dueRemovals(alive)
	for _, ref := range due {
		req := lifecycle.GoneRequest{Pod: ref, Dir: filepath.Join(h.opts.PodsDir, string(ref.UID))}
		h.removals.begin(ctx, ref.UID,
			func(ctx context.Context) error { return h.deps.Steps.Gone(ctx, req) },
			func() {
				h.log.Info("Removing what a gone pod has left takes long; a pod of its UID waits for it",
					"podUID", ref.UID, "dir", req.Dir)
			})
	}
	return err
}

// dueRemovals returns the pods for which the step Gone can begin.
func (h *PodHandler) dueRemovals(alive func(types.UID) bool) (due []runtime.PodRef, err error) {
	now := time.Now()
	for uid, ref := range h.goneDue { // a pod that is desired again waits for it, see update
		if h.removals.due(uid, now) {
			due = append(due, ref)
		}
	}
	entries, err := os.ReadDir(h.opts.PodsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return due, fmt.Errorf("looking for directories of gone pods: %w", err)
	}
	left := map[types.UID]bool{} // pods of which only a directory is left
	for _, e := range entries {
		uid := types.UID(e.Name())
		_, leaving := h.goneDue[uid]
		_, ending := h.known[uid]
		if leaving || ending || alive(uid) || !e.IsDir() || e.Name() == lostAndFound {
			continue
		}
		left[uid] = true
		if h.removals.due(uid, now) {
			due = append(due, runtime.PodRef{UID: uid})
		}
	}
	maps.DeleteFunc(h.removals.failed, func(uid types.UID, _ failedRemoval) bool {
		// its directory is gone, or that of a pod again
		_, leaving := h.goneDue[uid]
		return !leaving && !left[uid]
	})
	return due, nil
}

// endRemovals collects the outcomes of the removals that have ended.
func (h *PodHandler) endRemovals() {
	for uid, r := range h.removals.byUID {
		if r.ended() {
			h.endRemoval(uid, r)
		}
	}
}

// endRemoval collects the outcome of a removal that has ended. Of a row of failures, those with a new error are logged.
func (h *PodHandler) endRemoval(uid types.UID, r *removal) {
	r.cancel()
	delete(h.removals.byUID, uid)
	if r.err == nil {
		delete(h.goneDue, uid)
		delete(h.removals.failed, uid)
		h.log.V(2).Info("Removed what a gone pod has left", "podUID", uid)
		return
	}
	f := h.removals.failed[uid]
	f.failures++
	backoff := removalBackoff.After(f.failures)
	f.retryAt = time.Now().Add(backoff)
	if text := r.err.Error(); text != f.text {
		f.text = text
		h.log.Error(r.err, "What a gone pod has left cannot be removed; it is tried again, less and less often",
			"podUID", uid, "retryIn", backoff)
	} else {
		h.log.V(2).Info("What a gone pod has left cannot be removed", "podUID", uid, "err", text, "retryIn", backoff)
	}
	h.removals.failed[uid] = f
}

// CleanupUnderWay implements [Handler]. It reports whether a removal is under way, is to be repeated, or has ended
// since the last cleanup. A pod may wait for its end.
func (h *PodHandler) CleanupUnderWay() bool {
	return len(h.removals.byUID)+len(h.removals.failed)+len(h.goneDue) > 0
}

// Stop implements [Handler].
func (h *PodHandler) Stop() {
	defer h.waitForObserver()
	for _, r := range h.removals.byUID {
		r.cancel()
	}
	flow.Wait(&h.removals.tasks, flow.Late, func() {
		for uid, r := range h.removals.byUID {
			if !r.ended() {
				h.log.Error(nil, "The sync loop cannot stop: the removal of what a pod has left has not returned "+
					"although its context has ended", "podUID", uid)
			}
		}
	})
}
