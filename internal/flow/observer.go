package flow

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// observerQueue is the largest number of values that wait for an observer, beside as many that its goroutine has taken.
// It is several times the number of events of a node whose pods all start.
const observerQueue = 4096

// Observer calls a function of an embedder that receives values, such as events. Nothing waits for the function:
// [Observer.Add] queues the value. A goroutine that exists only while there are values calls the function, with one at
// a time and in their order. If the queue is full, further values are dropped, and their number is logged when the
// function goes on. A panic is recovered; the first one is logged.
type Observer[T any] struct {
	f    func(T)
	name string
	log  logr.Logger

	mu      sync.Mutex
	pending []T // at most observerQueue
	dropped int // since the function has gone on last
	// goroutines is the number of goroutines that deliver or log. idle is closed when there is no such goroutine. It is
	// nil while nobody waits.
	goroutines int
	delivering bool
	idle       chan struct{}

	panicked bool // belongs to deliver
}

// Observe returns a function that queues values for f, and the Observer that calls f. The name is for the log, such as
// "Event". If f is nil, so is the function.
func Observe[F ~func(T), T any](name string, f F, log logr.Logger) (F, *Observer[T]) {
	o := &Observer[T]{f: f, name: name, log: log}
	if f == nil {
		return nil, o
	}
	return o.Add, o
}

// Add queues the value, which must not change. It never blocks and calls nothing, so that it may be called under a
// lock.
func (o *Observer[T]) Add(value T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pending) >= observerQueue {
		if o.dropped++; o.dropped == 1 {
			o.start(func() {
				o.log.Error(nil, "Callback has not returned; further calls of it are dropped until it does",
					"callback", o.name)
				o.end()
			})
		}
		return
	}
	o.pending = append(o.pending, value)
	if !o.delivering {
		o.delivering = true
		o.start(o.deliver)
	}
}

// start starts a goroutine, which calls end last. mu is held.
func (o *Observer[T]) start(f func()) {
	o.goroutines++
	go f()
}

func (o *Observer[T]) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.goroutines--
	if o.goroutines == 0 && o.idle != nil {
		close(o.idle)
		o.idle = nil
	}
}

// deliver calls the function until there are no values left.
func (o *Observer[T]) deliver() {
	defer o.end()
	var batch []T
	for o.take(&batch) {
		for _, value := range batch {
			o.call(value)
		}
		clear(batch) // what the values refer to is garbage
	}
}

// take replaces the batch by the pending values. It returns false if there are none: the goroutine ends.
func (o *Observer[T]) take(batch *[]T) bool {
	o.mu.Lock()
	dropped := o.dropped
	o.dropped = 0
	o.pending, *batch = (*batch)[:0], o.pending
	o.delivering = len(*batch) > 0
	if !o.delivering && cap(o.pending) > 64 { // after a burst
		o.pending = nil
	}
	o.mu.Unlock()
	if dropped > 0 {
		o.log.Error(nil, "Callback goes on; calls of it were dropped meanwhile", "callback", o.name, "dropped", dropped)
	}
	return len(*batch) > 0
}

// call calls the function, and recovers its panic.
func (o *Observer[T]) call(value T) {
	defer func() {
		v := recover()
		if v == nil || o.panicked {
			return
		}
		o.panicked = true
		o.log.Error(fmt.Errorf("panic: %v", v), "Callback has panicked; it is called again, and further panics of "+
			"it are not logged",
			"callback", o.name, "stack", string(debug.Stack()))
	}()
	o.f(value)
}

// Idle returns a channel that is closed when no call waits or is under way.
func (o *Observer[T]) Idle() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.idle != nil {
		return o.idle
	}
	idle := make(chan struct{})
	if o.goroutines == 0 {
		close(idle)
	} else {
		o.idle = idle
	}
	return idle
}

// Late logs that an observer has not returned.
func (o *Observer[T]) Late() {
	o.log.Error(nil, "Callback has not returned; nothing waits for it any longer", "callback", o.name)
}

// Waiter is an [Observer] that can be waited for.
type Waiter interface {
	Idle() <-chan struct{}
	Late()
}

// WaitForObservers waits until the observers have received everything, but at most for the time [Late]: an observer
// that blocks for ever does not keep its caller from ending. It is logged, and receives the rest when it goes on.
func WaitForObservers(observers ...Waiter) {
	timer := time.NewTimer(Late)
	defer timer.Stop()
	late := false
	for _, o := range observers {
		if !late {
			select {
			case <-o.Idle():
				continue
			case <-timer.C:
				late = true
			}
		}
		select {
		case <-o.Idle():
		default:
			o.Late()
		}
	}
}
