package syncloop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// removalWait is how long one cleanup waits for the step Gone of pods. It
// can take any time, as it tears down volumes. It goes on beside the loop then.
const removalWait = 250 * time.Millisecond

// removals are the calls of the step Gone that are under way. Their pods have no worker.
type removals struct {
	byUID map[types.UID]*removal
	tasks sync.WaitGroup
}

// lostAndFound is a directory of the file system ext4, and no pod's, if the pods have a file system
// of their own.
const lostAndFound = "lost+found"

// removal removes what one pod has left. done is closed when err is set.
type removal struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (r *removals) underWay(uid types.UID) bool { return r.byUID[uid] != nil }

// begin begins a removal.
func (r *removals) begin(ctx context.Context, uid types.UID, remove func(ctx context.Context) error) *removal {
	ctx, cancel := context.WithCancel(ctx)
	begun := &removal{cancel: cancel, done: make(chan struct{})}
	if r.byUID == nil {
		r.byUID = map[types.UID]*removal{}
	}
	r.byUID[uid] = begun
	r.tasks.Go(func() {
		defer close(begun.done)
		begun.err = runtime.Recover(func() error { return remove(ctx) })
	})
	return begun
}

// leave calls the step Gone for the pods whose end was reported, and for those of which only a directory is left. It
// reports whether there are more, for which the time was too short.
func (h *PodHandler) leave(ctx context.Context, alive func(types.UID) bool) (more bool, err error) {
	due, err := h.dueToLeave(alive)
	errs := []error{err}
	timeout := time.NewTimer(removalWait)
	defer timeout.Stop()
	for _, ref := range due {
		req := lifecycle.GoneRequest{Pod: ref, Dir: filepath.Join(h.opts.PodsDir, string(ref.UID))}
		r := h.removals.begin(ctx, ref.UID, func(ctx context.Context) error { return h.deps.Steps.Gone(ctx, req) })
		select {
		case <-r.done:
			errs = append(errs, h.endRemoval(ref.UID, r))
		case <-timeout.C:
			h.log.Info("Removing what a gone pod has left takes long; the loop does not wait for it", "podUID", ref.UID, "dir", req.Dir)
			return true, errors.Join(errs...)
		}
	}
	return false, errors.Join(errs...)
}

// dueToLeave returns the pods for which the step Gone can begin.
func (h *PodHandler) dueToLeave(alive func(types.UID) bool) (due []runtime.PodRef, err error) {
	for uid, ref := range h.leaving { // a pod that is desired again waits for it, see update
		if !h.removals.underWay(uid) {
			due = append(due, ref)
		}
	}
	entries, err := os.ReadDir(h.opts.PodsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return due, fmt.Errorf("looking for directories of gone pods: %w", err)
	}
	for _, e := range entries {
		uid := types.UID(e.Name())
		_, leaving := h.leaving[uid]
		_, ending := h.known[uid]
		if !leaving && !ending && !h.removals.underWay(uid) && !alive(uid) && e.IsDir() && e.Name() != lostAndFound {
			due = append(due, runtime.PodRef{UID: uid})
		}
	}
	return due, nil
}

// endRemovals ends the removals that are done, and reports whether one has failed.
func (h *PodHandler) endRemovals() (failed bool) {
	for uid, r := range h.removals.byUID {
		select {
		case <-r.done:
			if err := h.endRemoval(uid, r); err != nil {
				h.log.Error(err, "Removal has failed; it is repeated")
				failed = true
			}
		default:
		}
	}
	return failed
}

// endRemoval ends a removal that is done, and returns its error.
func (h *PodHandler) endRemoval(uid types.UID, r *removal) error {
	r.cancel()
	delete(h.removals.byUID, uid)
	if r.err != nil {
		return fmt.Errorf("removing what gone pod %s has left: %w", uid, r.err)
	}
	delete(h.leaving, uid)
	h.log.V(2).Info("Removed what a gone pod has left", "podUID", uid)
	return nil
}

// CleanupUnderWay implements [Handler]. It reports whether a removal is under way or has ended since the last cleanup. A pod
// may wait for its end.
func (h *PodHandler) CleanupUnderWay() bool { return len(h.removals.byUID)+len(h.leaving) > 0 }

// Stop implements [Handler].
func (h *PodHandler) Stop() {
	for _, r := range h.removals.byUID {
		r.cancel()
	}
	flow.Wait(&h.removals.tasks, flow.Late, func() {
		for uid, r := range h.removals.byUID {
			select {
			case <-r.done:
			default:
				h.log.Error(nil, "The sync loop cannot stop: the removal of what a pod has left has not returned although its context has ended", "podUID", uid)
			}
		}
	})
}
