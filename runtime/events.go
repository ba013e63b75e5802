package runtime

import (
	"context"
	"time"
)

// EventSource tells that something happened in the runtime, as it happens.
type EventSource interface {
	// WatchEvents streams hints until ctx ends or the stream breaks, and returns why;
	// it never returns nil. The error wraps [errors.ErrUnsupported] if the runtime
	// has no such stream and will not have one, [ErrUnavailable] if it did not answer.
	//
	// established, if not nil, is called once, when the runtime is known to have taken
	// the subscription up; some runtimes do not let that be known before the first
	// event. hint is called for each event, from one goroutine, in the order of
	// arrival. A slow callback holds up the runtime itself, so neither may block.
	WatchEvents(ctx context.Context, established func(), hint func(Hint)) error
}

// Hint says that something about a pod may have changed. It is never the truth
// about a pod: hints come late, twice, out of order, or not at all.
type Hint struct {
	// Pod that the event is about. Its UID is empty where the runtime did not say;
	// its name and namespace may be too.
	Pod PodRef
	// ID of the container or the sandbox that the event is about, without the type
	// of the runtime; empty if the runtime did not say.
	ID string
	// Event is what has happened to it, empty if the runtime did not say. It is not
	// taken for the truth either; it only saves looking at a pod of which as much is
	// known already.
	Event HintEvent
	// Age of the event when it arrived, by the clock of the machine, 0 if the runtime
	// did not say when it happened. It serves measurements, never decisions.
	Age time.Duration
}

// HintEvent is what a runtime says has happened to a container or a sandbox.
type HintEvent string

// What may have happened, in the order in which it does.
const (
	HintCreated HintEvent = "created"
	HintStarted HintEvent = "started"
	HintStopped HintEvent = "stopped"
	HintDeleted HintEvent = "deleted"
)
