package history

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// watcher is one reader of new entries. Its fields are guarded by the lock of the Memory.
type watcher struct {
	// uid is the pod, empty for all.
	uid types.UID
	// after is the number of the last entry that was taken.
	after uint64
	// news has the pods that have later entries.
	news map[types.UID]struct{}
	// wake has room for one token. There is one if news is not empty.
	wake flow.Signal
}

// note notes that a pod has a new entry.
func (w *watcher) note(uid types.UID) {
	if w.uid != "" && w.uid != uid {
		return
	}
	w.news[uid] = struct{}{}
	w.wake.Notify()
}

// watch adds a watcher for which all entries after the number are new.
func (m *Memory) watch(uid types.UID, after uint64) *watcher {
	w := &watcher{uid: uid, after: after, news: map[types.UID]struct{}{}, wake: flow.NewSignal()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers[w] = struct{}{}
	for known := range m.pods {
		w.note(known)
	}
	return w
}

func (m *Memory) unwatch(w *watcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.watchers, w)
}

// take returns the new entries in their order. The cost is proportional to the number of
// pods that have new entries.
func (m *Memory) take(w *watcher) []Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	var entries []Entry
	for uid := range w.news {
		if p := m.pods[uid]; p != nil {
			entries = p.ring.appendEntries(entries, p.ref, w.after)
		}
	}
	clear(w.news)
	w.after = m.seq
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return entries
}

// Watch implements [Store]. It starts no goroutine: what is recorded while the caller
// handles an entry waits in the histories of the pods.
func (m *Memory) Watch(ctx context.Context, uid types.UID) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		w := m.watch(uid, 0)
		defer m.unwatch(w)
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.wake:
			}
			for _, e := range m.take(w) {
				if ctx.Err() != nil || !yield(e) {
					return
				}
			}
		}
	}
}
