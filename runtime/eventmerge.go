package runtime

import (
	"container/list"
	"hash/maphash"
	"sync"
	"time"
)

// The bounds of [MergeEvents].
const (
	// mergeWindow is the time within which an event is a repeat of the one before. It
	// is that of kubelet's event correlator.
	mergeWindow = 10 * time.Minute
	// mergeKept is the number of different events that are kept. It is that of kubelet's
	// event correlator.
	mergeKept = 4096
)

// MergeEvents returns an EventFunc that counts repeats and calls f with the Count,
// First and Last of each event. An event is a repeat if all its fields equal those of
// another one in the 10 minutes before. Of the repeats, f receives the second, the
// fourth, the eighth and so on, and at least one in 10 minutes.
//
// MergeEvents keeps the latest 4096 different events in memory, without their
// messages. It starts no goroutine. Calls of f are not serialized. MergeEvents(nil) is
// nil.
func MergeEvents(f EventFunc) EventFunc {
	if f == nil {
		return nil
	}
	m := &merger{order: list.New(), byKey: map[eventKey]*list.Element{}, seed: maphash.MakeSeed()}
	return func(e Event) {
		if merged, pass := m.merge(e, time.Now()); pass {
			f(merged)
		}
	}
}

// merger counts events. The values of order are *merged, the latest first. byKey has
// its elements by their key.
type merger struct {
	mu    sync.Mutex
	order *list.List
	byKey map[eventKey]*list.Element
	seed  maphash.Seed
}

// eventKey is an event without Count, First and Last, and with a hash in place of its
// message, which may have the output of a probe.
type eventKey struct {
	Event
	message uint64
}

type merged struct {
	key         eventKey
	count       int
	first, last time.Time
	passed      time.Time // of the last one that f received
}

// merge counts the event and reports whether it is to be passed on.
func (m *merger) merge(e Event, now time.Time) (Event, bool) {
	e.Count, e.First, e.Last = 0, time.Time{}, time.Time{}
	key := eventKey{e, maphash.String(m.seed, e.Message)}
	key.Message = ""
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.byKey[key]
	if at != nil && now.Sub(at.Value.(*merged).last) > mergeWindow {
		m.order.Remove(at)
		at = nil
	}
	if at == nil {
		at = m.order.PushFront(&merged{key: key, first: now})
		m.byKey[key] = at
		if m.order.Len() > mergeKept {
			oldest := m.order.Back()
			delete(m.byKey, oldest.Value.(*merged).key)
			m.order.Remove(oldest)
		}
	} else {
		m.order.MoveToFront(at)
	}
	r := at.Value.(*merged)
	r.count++
	r.last = now
	powerOfTwo := r.count&(r.count-1) == 0
	if !powerOfTwo && now.Sub(r.passed) < mergeWindow {
		return Event{}, false
	}
	r.passed = now
	e.Count, e.First, e.Last = r.count, r.first, r.last
	return e, true
}
