package pleg

import (
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// EventedOptions are the settings of an [Evented]; the zero value is good.
type EventedOptions struct {
	Options
	// SafetyPeriod is the time between relists while the event stream is good. It is
	// raised to RelistPeriod if it is less. Default: 300 s, that of kubelet's evented
	// PLEG.
	SafetyPeriod time.Duration
	// MaxMisses is how many relists may find changes of which the event stream had not
	// told, with no hint in between that led to a change, before the stream is given
	// up and opened anew. A stream that has told nothing at all since the relist before
	// is given up at the first. Default: 5.
	MaxMisses int
}

func (o *EventedOptions) setDefaults() {
	o.Options.setDefaults()
	if o.SafetyPeriod <= 0 {
		o.SafetyPeriod = 300 * time.Second
	}
	o.SafetyPeriod = max(o.SafetyPeriod, o.RelistPeriod)
	if o.MaxMisses <= 0 {
		o.MaxMisses = 5
	}
}

// Evented is a [Generator] that learns of changes from the runtime's event stream,
// at once, and relists only as a safety net. Without a stream, because the runtime
// has none or because it is broken, it is what [Generic] is. Build it with
// [NewEvented].
type Evented struct{ *engine }

var _ Generator = Evented{}

// EventedRuntime is what an [Evented] needs of a runtime.
type EventedRuntime interface {
	runtime.Lister
	runtime.EventSource
}

// NewEvented returns a generator over the runtime's lists and its event stream. It
// reads changed pods into the cache, which must read from the same runtime.
func NewEvented(rt EventedRuntime, cache Cache, opts EventedOptions) *Evented {
	opts.setDefaults()
	return &Evented{newEngine(rt, rt, cache, opts)}
}
