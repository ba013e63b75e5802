package plugins

import (
	"errors"
	"time"
)

const (
	// noAnswer is the kind of failures of a socket at which nobody serves, refused that of the others.
	noAnswer failureKind = "no answer"
	refused  failureKind = "refused"

	// logDelay is how long failures are collected before they are logged, longLogDelay the same in the minute after a
	// line. maxFailures is how many of them have a line of their own.
	logDelay     = time.Second
	longLogDelay = 10 * time.Second
	maxFailures  = 3
)

// failure is the error of a registration.
type failure struct {
	kind failureKind
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failures are registrations that have failed: their number, and the first of them.
type failures struct {
	count int
	first []failedSocket
}

type failedSocket struct {
	path string
	err  error
}

// note has the failure of a socket logged, unless one of its kind was logged for the same socket.
func (r *run) note(path string, err error) {
	kind := refused
	if f := (*failure)(nil); errors.As(err, &f) {
		kind = f.kind
	}
	r.mu.Lock()
	logs := r.sockets.logs(path, kind)
	r.mu.Unlock()
	if !logs {
		return
	}
	if r.failed.count++; len(r.failed.first) < maxFailures {
		r.failed.first = append(r.failed.first, failedSocket{path, err})
	}
	if r.logAt.IsZero() {
		now := time.Now()
		r.logAt = now.Add(logDelay)
		if now.Sub(r.loggedAt) < time.Minute {
			r.logAt = now.Add(longLogDelay)
		}
	}
}

// logFailed logs the failures: a few in a line each, many in one line.
func (r *run) logFailed() {
	f := r.failed
	r.failed, r.logAt, r.loggedAt = failures{}, time.Time{}, time.Now()
	if f.count > maxFailures {
		r.log.Error(f.first[0].err, "Plugins cannot be registered; they are tried again, which is not logged",
			"sockets", f.count, "first", f.first[0].path)
		return
	}
	for _, s := range f.first {
		r.log.Error(s.err, "A plugin cannot be registered; it is tried again, which is not logged",
			"socket", s.path)
	}
}
