package dra

import (
	"fmt"
	"slices"
	"time"
)

// Endpoint is one part of a driver that was added to a [Manager]. While a driver is updated, it has two. Its methods are safe for concurrent
// use.
type Endpoint struct {
	m      *Manager
	name   string
	driver Driver

	// The fields below are guarded by Manager.mu.
	connected bool
	removed   bool
	health    map[deviceID]reported
}

// Add adds a part of a driver. It is not connected. Of the parts of a driver, calls go to the one that was added last among those that are
// connected, or among all if none is.
func (m *Manager) Add(name string, driver Driver) *Endpoint {
	e := &Endpoint{m: m, name: name, driver: driver}
	m.change(name, func() { m.drivers[name] = append(m.drivers[name], e) })
	return e
}

// SetConnected tells the manager whether the part of the driver can be called.
func (e *Endpoint) SetConnected(connected bool) {
	e.m.change(e.name, func() { e.connected = connected && !e.removed })
}

// Remove removes the part of the driver.
func (e *Endpoint) Remove() {
	e.ClearHealth()
	e.m.change(e.name, func() {
		e.removed, e.connected = true, false
		list := slices.DeleteFunc(slices.Clone(e.m.drivers[e.name]), func(o *Endpoint) bool { return o == e })
		if e.m.drivers[e.name] = list; len(list) == 0 {
			delete(e.m.drivers, e.name)
		}
	})
}

// change changes the parts of a driver. If none is connected, the slices of the driver are removed after a delay, which begins
// with the first such change.
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
