package pleg

import (
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of a generator; the zero value is good.
type Options struct {
	// Logger says what goes wrong in the runtime. Default: none.
	Logger logr.Logger
	// Metrics is told what the generator does. Default: nobody is.
	Metrics Metrics
	// RelistPeriod is the time from the end of one list call to the beginning of the
	// next where there are no hints to be relied on, and the longest time that a failed
	// inspection waits to be tried again. Default: 1 s, kubelet's.
	RelistPeriod time.Duration
	// RelistThreshold is how long the generator counts as healthy after a list call
	// has succeeded; where the next one is due later than after RelistPeriod, by as much
	// longer. It is raised to twice RelistPeriod if it is less. Default: 3 min,
	// kubelet's.
	RelistThreshold time.Duration
	// ListTimeout bounds one list call. Default: 2 min, kubelet's
	// runtimeRequestTimeout.
	ListTimeout time.Duration
	// InspectTimeout bounds the inspection of one pod. Default: 30 s: far above what
	// a loaded runtime needs for a pod, and after it the pod is tried again.
	InspectTimeout time.Duration
	// MaxInspections is how many pods are inspected side by side, at most. In a burst
	// of changes it begins with 4 and goes up for as long as the runtime answers no
	// slower for it. An inspection that takes longer than a second no longer counts,
	// so that hung ones do not keep the place of others: at worst (1 + InspectTimeout
	// in seconds) times as many are under way, and one for each pod. Default: 64.
	MaxInspections int
}

func (o *Options) setDefaults() {
	if o.Metrics == nil {
		o.Metrics = NopMetrics{}
	}
	for _, d := range []struct {
		value *time.Duration
		std   time.Duration
	}{
		{&o.RelistPeriod, time.Second},
		{&o.RelistThreshold, 3 * time.Minute},
		{&o.ListTimeout, 2 * time.Minute},
		{&o.InspectTimeout, 30 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.std
		}
	}
	o.RelistThreshold = max(o.RelistThreshold, 2*o.RelistPeriod)
	if o.MaxInspections <= 0 {
		o.MaxInspections = 64
	}
}

// Generic is a [Generator] that needs nothing of the runtime but its list: it
// relists periodically and reports the differences. Build it with [NewGeneric].
type Generic struct{ *engine }

var (
	_ Generator = (*Generic)(nil)
	_ Relister  = (*Generic)(nil)
)

// NewGeneric returns a generator over the lister. It reads changed pods into the
// cache, which must read from the same runtime.
func NewGeneric(lister runtime.Lister, cache Cache, opts Options) *Generic {
	opts.setDefaults()
	return &Generic{newEngine(lister, nil, cache, EventedOptions{Options: opts})}
}
