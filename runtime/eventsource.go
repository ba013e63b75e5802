package runtime

import (
	"context"
	"time"
)

// EventSource is an optional interface of a [Runtime]: it reports changes in the
// runtime as they happen.
type EventSource interface {
	// WatchEvents calls hint for each event until ctx ends or the stream breaks, and
	// returns the reason; it never returns nil. The error wraps [errors.ErrUnsupported]
	// if the runtime has no event stream and will not have one, and [ErrUnavailable] if
	// it did not answer.
	//
	// If established is not nil, WatchEvents calls it once, when the subscription is
	// known to be active. With some runtimes that is known only after the first event.
	//
	// Both functions are called from one goroutine, hint in the order of arrival. They
	// must not block, since a reader that is slow can block the runtime.
	WatchEvents(ctx context.Context, established func(), hint func(Hint)) error
}

// Hint reports that a pod may have changed. Hints can be late, repeated, out of
// order, or missing. A consumer inspects the pod; it does not trust the hint.
type Hint struct {
	// Pod is the pod that the event is about. Any field is empty if the runtime did not
	// send it.
	Pod PodRef
	// ID is the container or the sandbox that the event is about, without the name of
	// the runtime. It is empty if the runtime did not send it.
	ID string
	// Event is what happened to it. It is empty if the runtime did not send it. It may
	// save an inspection of a pod whose status shows the change already.
	Event HintEvent
	// Age is the time between the event and its arrival, by the clock of the machine. It
	// is 0 if the runtime did not send the time of the event. It is for metrics only.
	Age time.Duration
}

// HintEvent is what happened to a container or a sandbox.
type HintEvent string

// The events of a container or a sandbox, in their natural order.
const (
	HintCreated HintEvent = "created"
	HintStarted HintEvent = "started"
	HintStopped HintEvent = "stopped"
	HintDeleted HintEvent = "deleted"
)
