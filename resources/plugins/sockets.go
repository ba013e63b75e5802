package plugins

import (
	"time"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// sockets is the state of all sockets. Its methods are transitions: they return what is to be done, and have no other effect.
type sockets struct {
	backoff flow.Backoff
	byPath  map[string]*socket
}

// socket is the state of a path.
type socket struct {
	// there is the number of the socket that the last scan has found, see [scan]. 0: none.
	there uint64
	// busy means that an action is under way. It is not started twice.
	busy bool
	// tried is the number of the socket of the registration under way, or of the last one.
	tried uint64
	// plugin is registered. nil: none.
	plugin *Plugin
	// failures is the number of registrations of the socket tried that have failed in a row, and retry when the next one is due.
	failures int
	retry    time.Time
}

// action is what is to be done for a path.
type action struct {
	kind actionKind
	path string
	// plugin is the one to deregister.
	plugin Plugin
}

type actionKind int

const (
	register   actionKind = iota // its result is reported to done
	deregister                   // likewise
	cancel                       // the registration under way is of no use any more
)

func newSockets(backoff flow.Backoff) *sockets {
	return &sockets{backoff: backoff, byPath: map[string]*socket{}}
}

// found takes over what a scan has found: the numbers of the sockets by path.
func (s *sockets) found(now time.Time, found map[string]uint64) (actions []action) {
	for path, number := range found {
		k := s.byPath[path]
		if k == nil {
			k = &socket{}
			s.byPath[path] = k
		}
		k.there = number
	}
	for path, k := range s.byPath {
		if _, ok := found[path]; !ok {
			k.there = 0
		}
		actions = s.next(now, path, k, actions)
	}
	return actions
}

// done takes over the result of a registration, or of a deregistration: the plugin that is registered now, or the error of a registration.
func (s *sockets) done(now time.Time, path string, plugin *Plugin, err error) (actions []action) {
	k := s.byPath[path]
	k.busy, k.plugin = false, plugin
	if err != nil {
		k.failures++
		k.retry = now.Add(s.backoff.After(k.failures))
	}
	return s.next(now, path, k, nil)
}

// due returns the registrations whose back-off is over.
func (s *sockets) due(now time.Time) (actions []action) {
	for path, k := range s.byPath {
		actions = s.next(now, path, k, actions)
	}
	return actions
}

// next adds the next action of a path.
func (s *sockets) next(now time.Time, path string, k *socket, actions []action) []action {
	switch {
	case k.busy && k.there != k.tried:
		return append(actions, action{kind: cancel, path: path})
	case k.busy:
		return actions
	case k.plugin != nil && k.there != k.tried:
		k.busy = true
		return append(actions, action{kind: deregister, path: path, plugin: *k.plugin})
	case k.plugin != nil:
		return actions
	case k.there == 0:
		delete(s.byPath, path)
		return actions
	case k.there != k.tried:
		k.tried, k.failures, k.retry = k.there, 0, time.Time{}
	}
	if k.failures > 0 && now.Before(k.retry) {
		return actions
	}
	k.busy = true
	return append(actions, action{kind: register, path: path})
}

// wait returns the time until the next registration is due, 0 if none waits.
func (s *sockets) wait(now time.Time) (d time.Duration) {
	for _, k := range s.byPath {
		if !k.busy && k.plugin == nil && k.failures > 0 {
			d = flow.Soonest(d, max(k.retry.Sub(now), 1))
		}
	}
	return d
}

// registered returns the plugins that are registered.
func (s *sockets) registered() (list []Plugin) {
	for _, k := range s.byPath {
		if k.plugin != nil {
			list = append(list, *k.plugin)
		}
	}
	return list
}
