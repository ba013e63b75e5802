package flow

import "sync"

// Queue carries out functions one at a time, in the order in which they were added. The zero
// value is ready for use. Its owner adds functions while it holds its own lock, and calls Run when it has
// released it:
//
//	p.mu.Lock()
//	p.state = next
//	p.effects.Add(func() { p.opts.Event(e) })
//	p.mu.Unlock()
//	p.effects.Run()
//
// A function may call the owner again: what it adds is carried out after it. A function that blocks delays those
// of others, and must not panic.
type Queue struct {
	mu      sync.Mutex
	pending []func()
	running bool
}

// Add adds a function. It does not call it.
func (q *Queue) Add(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, f)
}

// Run calls the functions that were added, and returns when there are none left. If another goroutine is in
// Run, or the caller is one of the functions, it returns at once: that Run calls them. The owner's lock must not be held.
func (q *Queue) Run() {
	q.mu.Lock()
	if q.running || len(q.pending) == 0 {
		q.mu.Unlock()
		return
	}
	q.running = true
	for len(q.pending) > 0 {
		batch := q.pending
		q.pending = nil
		q.mu.Unlock()
		for i, f := range batch {
			batch[i] = nil
			f()
		}
		q.mu.Lock()
	}
	q.running = false
	q.mu.Unlock()
}
