package runtime

import (
	"container/list"
	"sync"
	"time"
)

// The bounds of [MergeEvents].
const (
	// mergeWindow is how long an event counts as a repeat of the last one like it.
	// kubelet's correlator of events forgets after 10 minutes, too.
	mergeWindow = 10 * time.Minute
	// mergeKept is how many different events are remembered, the latest ones.
	mergeKept = 4096
)

// MergeEvents returns an EventFunc that passes events on to f with their Count,
// First and Last. Events that differ in nothing are repeats of each other, as long
// as they follow each other within 10 minutes. Of repeats, f receives the first, the
// second, the fourth, the eighth and so on, and at least one in 10 minutes. It keeps
// the latest 4096 different events, and starts no goroutine.
func MergeEvents(f EventFunc) EventFunc {
	if f == nil {
		return nil
	}
	m := &merger{order: list.New(), byKey: map[Event]*list.Element{}}
	return func(e Event) {
		if merged, pass := m.merge(e, time.Now()); pass {
			f(merged)
		}
	}
}

// merger counts events. byKey has the elements of order, whose values are *merged,
// the latest first.
type merger struct {
	mu    sync.Mutex
	order *list.List
	byKey map[Event]*list.Element
}

type merged struct {
	key         Event
	count       int
	first, last time.Time
	passed      time.Time // when one was last passed on
}

// merge counts the event and reports whether it is to be passed on.
func (m *merger) merge(e Event, now time.Time) (Event, bool) {
	e.Count, e.First, e.Last = 0, time.Time{}, time.Time{}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.byKey[e]
	if at != nil && now.Sub(at.Value.(*merged).last) > mergeWindow {
		m.order.Remove(at)
		at = nil
	}
	if at == nil {
		at = m.order.PushFront(&merged{key: e, first: now})
		m.byKey[e] = at
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
