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

	"github.com/kubeletkit/kubeletkit/internal/join"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// removalWait is how long one cleanup waits for the removal of directories. A removal
// can take any time, as it tears down volumes. It goes on beside the loop then.
const removalWait = 250 * time.Millisecond

// removals are the removals of directories that are under way. The pod of such a
// directory has no worker.
type removals struct {
	byUID map[types.UID]*removal
	tasks sync.WaitGroup
}

// lostAndFound is a directory of the file system ext4, and no pod's, if the pods have a file system
// of their own.
const lostAndFound = "lost+found"

// removal is the removal of the directory of one pod. done is closed when err is set.
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

// removeDirs removes the directories of pods that are gone. It reports whether there are
// more, for which the time was too short.
func (h *Handler) removeDirs(ctx context.Context, alive func(types.UID) bool) (more bool, err error) {
	entries, err := os.ReadDir(h.opts.PodsDir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for directories of gone pods: %w", err)
	}
	timeout := time.NewTimer(removalWait)
	defer timeout.Stop()
	var errs []error
	for _, e := range entries {
		uid := types.UID(e.Name())
		if _, ending := h.known[uid]; ending || h.removals.underWay(uid) || alive(uid) || !e.IsDir() || e.Name() == lostAndFound {
			continue
		}
		dir := filepath.Join(h.opts.PodsDir, e.Name())
		r := h.removals.begin(ctx, uid, func(ctx context.Context) error { return h.deps.Dirs.Remove(ctx, runtime.PodRef{UID: uid}, dir) })
		select {
		case <-r.done:
			errs = append(errs, h.endRemoval(uid, r))
		case <-timeout.C:
			h.log.Info("Removing the directory of a gone pod takes long; the loop does not wait for it", "podUID", uid, "dir", dir)
			return true, errors.Join(errs...)
		}
	}
	return false, errors.Join(errs...)
}

// endRemovals ends the removals that are done, and reports whether one has failed.
func (h *Handler) endRemovals() (failed bool) {
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
func (h *Handler) endRemoval(uid types.UID, r *removal) error {
	r.cancel()
	delete(h.removals.byUID, uid)
	if r.err != nil {
		return fmt.Errorf("removing the directory of gone pod %s: %w", uid, r.err)
	}
	h.log.V(2).Info("Removed the directory of a gone pod", "podUID", uid)
	return nil
}

// remover is a SyncHandler whose removals go on beside the loop, such as a [Handler].
type remover interface{ removing() bool }

// removing reports whether a removal is under way or has ended since the last cleanup. A pod
// may wait for its end.
func (h *Handler) removing() bool { return len(h.removals.byUID) > 0 }

// Stopper is an optional interface of a [SyncHandler] that starts goroutines, found by
// [runtime.Optional].
type Stopper interface {
	// Stop ends the goroutines and waits for them. It is called from the goroutine of the
	// loop when [Loop.Run] ends.
	Stop()
}

var _ Stopper = (*Handler)(nil)

// Stop implements [Stopper].
func (h *Handler) Stop() {
	for _, r := range h.removals.byUID {
		r.cancel()
	}
	join.Wait(&h.removals.tasks, join.Late, func() {
		for uid, r := range h.removals.byUID {
			select {
			case <-r.done:
			default:
				h.log.Error(nil, "The sync loop cannot stop: the removal of a pod's directory has not returned although its context has ended", "podUID", uid)
			}
		}
	})
}
