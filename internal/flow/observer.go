package flow

import (
	"fmt"
	"reflect"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// observerQueue is the largest number of calls that wait for an observer, beside as many that its goroutine has taken.
// It is several times the number of events of a node whose pods all start.
const observerQueue = 4096

// Observer calls an observer of an embedder: a function, or an interface such as Metrics. Nothing waits for the
// observer: [Observer.Call] queues the call. A goroutine that exists only while there are calls makes them, one at a
// time and in their order. If the queue is full, further calls are dropped, and their number is logged when the
// observer goes on. A panic is recovered; the first one of each method is logged. The zero value has no observer.
type Observer[O any] struct {
	observer O
	some     bool // there is an observer
	name     string
	log      logr.Logger

	mu      sync.Mutex
	pending []observation[O] // at most observerQueue
	dropped int              // since the observer has gone on last
	// goroutines is the number of goroutines that deliver or log. idle is closed when there is no such goroutine. It is
	// nil while nobody waits.
	goroutines int
	delivering bool
	idle       chan struct{}

	panicked map[string]bool // methods; belongs to deliver
}

// observation is a call of a method.
type observation[O any] struct {
	method string
	call   func(O)
}

// Observe returns an Observer with a name for the log, such as "Metrics". If the interface or function is nil, it makes
// no calls.
func Observe[O any](name string, observer O, log logr.Logger) *Observer[O] {
	v := reflect.ValueOf(&observer).Elem()
	isNil := (v.Kind() == reflect.Interface || v.Kind() == reflect.Func) && v.IsNil()
	return &Observer[O]{observer: observer, some: !isNil, name: name, log: log}
}

// ObserveFunc returns a function that queues calls of f for an Observer. If f is nil, so is the function.
func ObserveFunc[F ~func(T), T any](name string, f F, log logr.Logger) (F, *Observer[F]) {
	o := Observe(name, f, log)
	if f == nil {
		return nil, o
	}
	return func(value T) { o.Call("", func(f F) { f(value) }) }, o
}

// ObserveUnless is [ObserveFunc], except that a function which neither blocks nor panics is called directly: it returns
// f, and an Observer that makes no calls.
func ObserveUnless[F ~func(T), T any](nonBlocking bool, name string, f F, log logr.Logger) (F, *Observer[F]) {
	if nonBlocking {
		return f, new(Observer[F])
	}
	return ObserveFunc(name, f, log)
}

// Call queues f, which calls the method. It never blocks and calls nothing, so that it may be called under a lock. f is
// called later, so that what it reads must not change:
//
//	n := p.count()
//	p.metrics.Call("Counted", func(m Metrics) { m.Counted(n) })
func (o *Observer[O]) Call(method string, f func(O)) {
	if !o.some {
		return
	}
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
	o.pending = append(o.pending, observation[O]{method, f})
	if !o.delivering {
		o.delivering = true
		o.start(o.deliver)
	}
}

// start starts a goroutine, which calls end last. mu is held.
func (o *Observer[O]) start(f func()) {
	o.goroutines++
	go f()
}

func (o *Observer[O]) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.goroutines--
	if o.goroutines == 0 && o.idle != nil {
		close(o.idle)
		o.idle = nil
	}
}

// deliver makes the calls until there are none left.
func (o *Observer[O]) deliver() {
	defer o.end()
	var batch []observation[O]
	for o.take(&batch) {
		for i, c := range batch {
			batch[i] = observation[O]{} // what it has captured is garbage after the call
			o.call(c)
		}
	}
}

// take replaces the batch by the pending calls. It returns false if there are none: the goroutine ends.
func (o *Observer[O]) take(batch *[]observation[O]) bool {
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

// call makes a call, and recovers its panic.
func (o *Observer[O]) call(c observation[O]) {
	defer func() {
		v := recover()
		if v == nil || o.panicked[c.method] {
			return
		}
		if o.panicked == nil {
			o.panicked = map[string]bool{}
		}
		o.panicked[c.method] = true
		o.log.Error(fmt.Errorf("panic: %v", v), "Callback has panicked; it is called again, and further panics of "+
			"it are not logged",
			"callback", o.callback(c.method), "stack", string(debug.Stack()))
	}()
	c.call(o.observer)
}

func (o *Observer[O]) callback(method string) string {
	if method == "" {
		return o.name
	}
	return o.name + "." + method
}

// Idle returns a channel that is closed when no call waits or is under way.
func (o *Observer[O]) Idle() <-chan struct{} {
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
func (o *Observer[O]) Late() {
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
