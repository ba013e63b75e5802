package plugins

import (
	"time"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// sockets is the state of all sockets. Its methods are transitions: they return what is to be done, and have no other
// effect.
type sockets struct {
	backoff flow.Backoff
	byPath  map[string]*socket
	// limit is the number of registrations that may be under way at a time.
	limit int
	// registering is the number of registrations under way. waiting is set if one is due that waits for the end of
	// another.
	registering int
	waiting     bool
	// dueAt is when due is to be called; zero for never. looked is when all sockets were looked at last.
	dueAt, looked time.Time
}

const (
	// maxRegistering is the number of registrations that are under way at a time.
	maxRegistering = 100
	// soonRetries is the number of retries that are not delayed by other sockets. After them, each socket delays the
	// others by retrySpacing: there are at most ten such retries a second.
	soonRetries  = 5
	retrySpacing = 100 * time.Millisecond
	// lookSpacing is the time between two looks at all sockets, for each socket: a look costs some nanoseconds for
	// each.
	lookSpacing = 20 * time.Microsecond
)

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
	// failures is the number of registrations of the socket tried that have failed in a row, and retry when the next
	// one is due.
	failures int
	retry    time.Time
	// logged are the kinds of failures of the socket tried that were logged.
	logged map[failureKind]bool
}

// failureKind is a kind of failures that is logged once.
type failureKind string

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
	return &sockets{backoff: backoff, byPath: map[string]*socket{}, limit: maxRegistering}
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
	}
	return s.due(now)
}

// done takes over the result of a registration, or of a deregistration: the plugin that is registered now, or the error
// of a registration.
func (s *sockets) done(now time.Time, path string, plugin *Plugin, err error) (actions []action) {
	k := s.byPath[path]
	if k.plugin == nil {
		s.registering--
	}
	k.busy, k.plugin = false, plugin
	if err != nil {
		k.failures++
		delay := s.backoff.After(k.failures)
		if k.failures > soonRetries {
			delay = max(delay, time.Duration(len(s.byPath))*retrySpacing)
		}
		k.retry = now.Add(delay)
	}
	if s.waiting {
		s.lookAt(now)
	}
	return s.next(now, path, k, nil)
}

// logs reports whether a failure of the socket is to be logged: it is the first of its kind.
func (s *sockets) logs(path string, kind failureKind) bool {
	k := s.byPath[path]
	if k.logged[kind] {
		return false
	}
	if k.logged == nil {
		k.logged = map[failureKind]bool{}
	}
	k.logged[kind] = true
	return true
}

// due returns what is to be done now: the registrations whose back-off is over.
func (s *sockets) due(now time.Time) (actions []action) {
	s.looked, s.dueAt, s.waiting = now, time.Time{}, false
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
		k.tried, k.failures, k.retry, k.logged = k.there, 0, time.Time{}, nil
	}
	switch {
	case k.failures > 0 && now.Before(k.retry):
		s.lookAt(k.retry)
		return actions
	case s.registering == s.limit:
		s.waiting = true
		return actions
	}
	k.busy = true
	s.registering++
	return append(actions, action{kind: register, path: path})
}

// lookAt has due called at the time, or later if there are many sockets.
func (s *sockets) lookAt(at time.Time) {
	if soonest := s.looked.Add(time.Duration(len(s.byPath)) * lookSpacing); at.Before(soonest) {
		at = soonest
	}
	if s.dueAt.IsZero() || at.Before(s.dueAt) {
		s.dueAt = at
	}
}

// wait returns the time until due is to be called, 0 for never.
func (s *sockets) wait(now time.Time) time.Duration {
	if s.dueAt.IsZero() {
		return 0
	}
	return max(s.dueAt.Sub(now), 1)
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
