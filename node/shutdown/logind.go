package shutdown

import (
	"context"
	"io"
	"time"
)

// Logind is the service of a machine that shuts it down: systemd-logind, or what answers in its place on the
// system bus. Package node/shutdown/logind has the real one, package node/shutdown/fake one in memory.
type Logind interface {
	// Connect connects to the service. It returns soon after ctx ends; the session outlives ctx.
	Connect(ctx context.Context) (Session, error)
}

// Session is a connection to [Logind]. Its methods are safe for concurrent use, and return soon after their
// context ends.
type Session interface {
	// Inhibit delays a shutdown until the lock is closed, or InhibitDelay has passed. It fails while a shutdown is
	// under way. The lock outlives the session, and the service if that is restarted.
	Inhibit(ctx context.Context) (lock io.Closer, err error)
	// InhibitDelay returns how long the service waits for locks.
	InhibitDelay(ctx context.Context) (time.Duration, error)
	// Reload has the service read its configuration files. It does not wait until it has.
	Reload(ctx context.Context) error
	// ShuttingDown reports whether a shutdown is under way.
	ShuttingDown(ctx context.Context) (bool, error)
	// Signals delivers what happens from Connect on, in order. It is closed when the connection is lost.
	Signals() <-chan Signal
	// Close ends the connection. It waits for what the session has started.
	Close() error
}

// Signal is what [Logind] reports.
type Signal uint8

// The signals.
const (
	// SignalShutdown: a shutdown begins; it waits for locks.
	SignalShutdown Signal = iota + 1
	// SignalCancelled: no shutdown is under way any more.
	SignalCancelled
	// SignalRestarted: the service was restarted.
	SignalRestarted
)
