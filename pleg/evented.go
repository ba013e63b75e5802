package pleg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// EventedOptions are the settings of an [Evented]. The zero value is valid.
type EventedOptions struct {
	Options
	// SafetyPeriod is the time between relists while the event stream is reliable. It is
	// at least RelistPeriod. Default: 300 s, the period of kubelet's evented PLEG.
	SafetyPeriod time.Duration
	// WithoutEvents leaves the event stream of the runtime unused: the generator relists every RelistPeriod, as a
	// [Generic].
	WithoutEvents bool
}

func (o *EventedOptions) setDefaults() {
	o.Options.setDefaults()
	if o.SafetyPeriod <= 0 {
		o.SafetyPeriod = 300 * time.Second
	}
	o.SafetyPeriod = max(o.SafetyPeriod, o.RelistPeriod)
}

// Evented is a [Generator] that inspects a pod as soon as the runtime's event stream
// reports a change of it, and relists only as a safety net. While there is no stream, it
// relists as often as [Generic]. Build it with [NewEvented].
type Evented struct{ *generator }

var _ Generator = (*Evented)(nil)

// NewEvented returns a generator over the runtime's lists and its event stream. It
// reads changed pods into the cache, which must read from the same runtime.
//
// The event stream is optional. The generator uses it if rt, or a runtime that rt wraps,
// is a [runtime.EventSource]; see [runtime.Optional]. Otherwise it relists every
// RelistPeriod, and logs that once.
func NewEvented(rt runtime.Lister, cache runtime.StatusCache, opts EventedOptions) *Evented {
	opts.setDefaults()
	if opts.WithoutEvents {
		return &Evented{newGenerator(rt, nil, cache, opts)}
	}
	events, ok := runtime.Optional[runtime.EventSource](rt)
	if !ok {
		events = noEvents{}
	}
	return &Evented{newGenerator(rt, events, cache, opts)}
}

// noEvents is the event source of a runtime that has none.
type noEvents struct{}

func (noEvents) WatchEvents(context.Context, func(), func(runtime.Hint)) error {
	return fmt.Errorf("%w: the runtime does not implement runtime.EventSource", errors.ErrUnsupported)
}
