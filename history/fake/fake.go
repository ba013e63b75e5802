// Package fake has a history for tests: it keeps every record as it came.
package fake

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// History is a [history.Store] that merges and drops nothing. The zero value is ready
// for use. It is safe for concurrent use.
type History struct {
	history.None
	mu      sync.Mutex
	entries []history.Entry
	// changed is closed with the next record; nil if nothing waits for it.
	changed chan struct{}
}

var _ history.Store = (*History)(nil)

// Record implements [history.Store].
func (h *History) Record(r runtime.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.entries = append(h.entries, history.Entry{Record: r, Seq: uint64(len(h.entries) + 1), Count: 1,
		First: now, Last: now})
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// Pods implements [history.Store].
func (h *History) Pods() []history.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	byUID := map[types.UID]history.Pod{}
	for _, e := range h.entries {
		if e.Kind == runtime.KindReject || e.Kind == runtime.KindRemoveCgroup || e.Kind == runtime.KindRotateLog {
			continue // it does not say that the pod is on the node
		}
		p := history.Pod{PodRef: e.Pod}
		if e.Kind == runtime.KindRemovePod {
			p.GoneAt = e.Last
		}
		byUID[e.Pod.UID] = p
	}
	pods := make([]history.Pod, 0, len(byUID))
	for _, p := range byUID {
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b history.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			strings.Compare(string(a.UID), string(b.UID)))
	})
	return pods
}

// Entries implements [history.Store]. An empty UID means all pods.
func (h *History) Entries(uid types.UID) []history.Entry {
	entries, _ := h.after(uid, 0)
	return entries
}

// after returns the entries after the first n, and a channel that is closed with the next.
func (h *History) after(uid types.UID, n int) ([]history.Entry, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	entries := slices.Clone(h.entries[n:])
	return slices.DeleteFunc(entries, func(e history.Entry) bool { return uid != "" && e.Pod.UID != uid }), h.changed
}

// Watch implements [history.Store].
func (h *History) Watch(ctx context.Context, uid types.UID) iter.Seq[history.Entry] {
	return func(yield func(history.Entry) bool) {
		n := 0
		for {
			entries, changed := h.after("", n)
			n += len(entries)
			for _, e := range entries {
				if ctx.Err() != nil || (uid == "" || e.Pod.UID == uid) && !yield(e) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}
}

// Records returns the records of the pods with that name and of these stages and kinds, in
// the order in which they came, without the pod and without what differs from run to run:
// durations and times. No kinds means all.
func (h *History) Records(pod string, kinds ...runtime.RecordKind) []runtime.Record {
	return Records(h.Entries(""), pod, kinds...)
}

// Records is [History.Records] for the entries of any history.
func Records(entries []history.Entry, pod string, kinds ...runtime.RecordKind) []runtime.Record {
	var out []runtime.Record
	for _, e := range entries {
		r := e.Record
		if r.Pod.Name != pod || len(kinds) > 0 && !slices.Contains(kinds, r.Kind) {
			continue
		}
		r.Pod, r.Duration, r.At = runtime.PodRef{}, 0, time.Time{}
		out = append(out, r)
	}
	return out
}
