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
// First and Last of each event. An event is a repeat if all its fields but Annotations equal those of
// another one in the 10 minutes before. Of the repeats, f receives the second, the
// fourth, the eighth and so on, and at least one in 10 minutes.
//
// MergeEvents remembers at most 4096 different events, each as two hashes, a count and three
// times. When an event arrives, it forgets those that are older than 10 minutes. It starts no
// goroutine. Calls of f are not serialized. MergeEvents(nil) is nil.
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

// merger counts events. The values of order are *merged, in the order of their last repeats,
// the latest first. byKey has its elements by their key.
type merger struct {
	mu    sync.Mutex
	order *list.List
	byKey map[eventKey]*list.Element
	seed  maphash.Seed
}

// eventKey identifies an event without its Count, First and Last by two hashes, one of the message
// and one of the rest. It has 16 bytes; the strings of an event with their headers have about 150.
type eventKey struct{ message, rest uint64 }

func (m *merger) keyOf(e Event) eventKey {
	rest := struct {
		pod                     PodRef
		fieldPath, kind, reason string
	}{e.Pod, e.FieldPath, e.Type, e.Reason}
	return eventKey{maphash.String(m.seed, e.Message), maphash.Comparable(m.seed, rest)}
}

type merged struct {
	key         eventKey
	count       int
	first, last time.Time
	passed      time.Time // of the last one that f received
}

// merge counts the event and reports whether it is to be passed on.
func (m *merger) merge(e Event, now time.Time) (Event, bool) {
	key := m.keyOf(e)
	m.mu.Lock()
	defer m.mu.Unlock()
	for oldest := m.order.Back(); oldest != nil &&
		now.Sub(oldest.Value.(*merged).last) > mergeWindow; oldest = m.order.Back() {
		m.forget(oldest)
	}
	at := m.byKey[key]
	if at == nil {
		at = m.order.PushFront(&merged{key: key, first: now})
		m.byKey[key] = at
		if m.order.Len() > mergeKept {
			m.forget(m.order.Back())
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

func (m *merger) forget(at *list.Element) {
	delete(m.byKey, at.Value.(*merged).key)
	m.order.Remove(at)
}
