package objects

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// Watchers implements [Source].Watch for a source that can list its own changes. While
// a callback runs, changes are merged, so a slow callback takes no memory beyond one entry
// for each object. The zero value is valid. Its methods are safe for concurrent use.
type Watchers struct {
	mu    sync.Mutex
	ready bool
	calls map[*watcher]struct{}
}

// Ready reports that lookups can be answered, and that any object may have changed. It
// does not block.
func (w *Watchers) Ready() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = true
	for call := range w.calls {
		call.add(true, nil)
	}
}

// Changed reports that the objects have changed. It does not block. Before the first call of
// Ready it does nothing.
func (w *Watchers) Changed(refs ...Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ready {
		return
	}
	for call := range w.calls {
		call.add(false, refs)
	}
}

// Watch calls changed as a [Source] does, after the first call of Ready. It returns nil when
// ctx ends. Several calls may run at the same time.
func (w *Watchers) Watch(ctx context.Context, changed func(refs []Ref)) error {
	call := &watcher{wake: flow.NewSignal(), refs: map[Ref]struct{}{}}
	w.mu.Lock()
	if w.calls == nil {
		w.calls = map[*watcher]struct{}{}
	}
	w.calls[call] = struct{}{}
	if w.ready {
		call.add(true, nil)
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.calls, call)
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-call.wake:
			if all, refs := call.take(); all {
				changed(nil)
			} else if len(refs) > 0 {
				changed(refs)
			}
		}
	}
}

// watcher holds the changes that one call of Watch has not reported yet.
type watcher struct {
	// wake holds one token if there are changes to report.
	wake flow.Signal

	mu   sync.Mutex
	all  bool
	refs map[Ref]struct{}
}

func (w *watcher) add(all bool, refs []Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = w.all || all
	for _, ref := range refs {
		w.refs[ref] = struct{}{}
	}
	w.wake.Notify()
}

func (w *watcher) take() (all bool, refs []Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, refs = w.all, slices.Collect(maps.Keys(w.refs))
	w.all = false
	clear(w.refs)
	return all, refs
}
