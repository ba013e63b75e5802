package dra

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Endpoint is one part of a driver that was added to a [Manager]. While a driver is updated, it has two. Its methods
// are safe for concurrent use.
type Endpoint struct {
	m      *Manager
	name   string
	driver Driver

	// The fields below are guarded by Manager.mu.
	connected bool
	removed   bool
	health    map[deviceID]reported
	// stop ends what Go was called with.
	stop []context.CancelFunc
}

// Add adds a part of a driver. It is not connected. Of the parts of a driver, calls go to the one that was added last
// among those that are connected, or among all if none is.
func (m *Manager) Add(name string, driver Driver) *Endpoint {
	e := &Endpoint{m: m, name: name, driver: driver}
	m.change(name, func() { m.drivers[name] = append(m.drivers[name], e) })
	return e
}

// SetConnected tells the manager whether the part of the driver can be called.
func (e *Endpoint) SetConnected(connected bool) {
	e.m.change(e.name, func() { e.connected = connected && !e.removed })
}

// Remove removes the part of the driver. It does not wait for what Go was called with.
func (e *Endpoint) Remove() {
	var stop []context.CancelFunc
	e.m.change(e.name, func() {
		e.removed, e.connected = true, false
		stop, e.stop = e.stop, nil
		list := slices.DeleteFunc(slices.Clone(e.m.drivers[e.name]), func(o *Endpoint) bool { return o == e })
		if e.m.drivers[e.name] = list; len(list) == 0 {
			delete(e.m.drivers, e.name)
		}
	})
	for _, f := range stop {
		f()
	}
	e.ClearHealth()
}

// Go calls f in a goroutine, for as long as the part is there. [Manager.Run] waits for it. ctx ends when the part is
// removed or the manager stops; if the part is removed already, f is called with a ctx that has ended. If Run was not
// called yet, f is called when it is. If the manager has stopped, Go returns false and does not call f. A panic of f is
// logged.
func (e *Endpoint) Go(f func(ctx context.Context)) bool {
	return e.m.parts.run(func(ctx context.Context) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		e.m.mu.Lock()
		removed := e.removed
		if !removed {
			e.stop = append(e.stop, stop)
		}
		e.m.mu.Unlock()
		if removed {
			stop()
		}
		e.m.guard(func() { f(ctx) })
	})
}

// parts runs functions as long as Run runs.
type parts struct {
	mu      sync.Mutex
	waiting []func(ctx context.Context) // for begin
	start   func(f func(ctx context.Context))
	ended   bool
}

// begin starts the functions that wait, and those that come later, in goroutines of the group.
func (p *parts) begin(ctx context.Context, joined *sync.WaitGroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start = func(f func(context.Context)) { joined.Go(func() { f(ctx) }) }
	for _, f := range p.waiting {
		p.start(f)
	}
	p.waiting = nil
}

// end refuses further functions. It does not stop those that run.
func (p *parts) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

func (p *parts) run(f func(ctx context.Context)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		return false
	case p.start == nil:
		p.waiting = append(p.waiting, f)
	default:
		p.start(f)
	}
	return true
}

// change changes the parts of a driver. If none is connected, the slices of the driver are removed after a delay, which
// begins with the first such change.
func (m *Manager) change(name string, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	usable := slices.ContainsFunc(m.drivers[name], func(e *Endpoint) bool { return e.connected })
	_, waits := m.removals[name]
	switch {
	case m.opts.Slices == nil:
	case usable:
		delete(m.removals, name)
	case !waits:
		m.removals[name] = removal{due: time.Now().Add(m.opts.SlicesDelay)}
		m.wake.Notify()
	}
}

// driver returns the part of a driver that calls go to.
func (m *Manager) driver(name string) (Driver, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.drivers[name]
	if len(list) == 0 {
		return nil, fmt.Errorf("DRA driver %s is not registered", name)
	}
	for _, e := range slices.Backward(list) {
		if e.connected {
			return e.driver, nil
		}
	}
	return list[len(list)-1].driver, nil
}
