package flow

import "sync"

// Queue carries out functions one at a time, in the order in which they were added. The zero
// value is ready for use. Its owner adds functions while it holds its own lock, and calls Run when it has
// released it:
//
//	p.mu.Lock()
//	p.state = next
//	p.afterUnlock.Add(func() { p.opts.Event(e) })
//	p.mu.Unlock()
//	p.afterUnlock.Run()
//
// A function may call the owner again: what it adds is carried out after it. A function that blocks delays those
// of others. A panic passes through Run, and the functions after it are called by the next Run.
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
// Run, or the caller is one of the functions, it returns at once: that Run calls them. The owner's lock must not be
// held.
func (q *Queue) Run() {
	q.mu.Lock()
	if q.running || len(q.pending) == 0 {
		q.mu.Unlock()
		return
	}
	q.running = true
	var batch []func()
	defer func() { // also if a function panics: the next Run goes on with those after it
		q.pending = append(batch, q.pending...)
		q.running = false
		q.mu.Unlock()
	}()
	for len(q.pending) > 0 {
		batch, q.pending = q.pending, nil
		q.mu.Unlock()
		q.call(&batch)
	}
}

// call calls the functions and removes them from the batch. It returns, or panics, with q.mu locked.
func (q *Queue) call(batch *[]func()) {
	defer q.mu.Lock()
	for len(*batch) > 0 {
		f := (*batch)[0]
		(*batch)[0] = nil
		*batch = (*batch)[1:]
		f()
	}
}
