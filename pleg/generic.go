package pleg

import (
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of a generator. The zero value is valid.
type Options struct {
	// Observer receives records of the changes of the states of containers and sandboxes, with the source that showed
	// them, and the measurements [Relisted], [Counts], [Connected], [Hinted] and [Missed]. Its Logger has failures of
	// the runtime and the state of the event stream. If it is NonBlocking, a record comes before the reader receives
	// the events.
	runtime.Observer
	// RelistPeriod is the time from the end of one list call to the beginning of the next
	// while there is no reliable event stream. It is also the longest time until a failed
	// inspection is tried again. Default: 1 s, kubelet's.
	RelistPeriod time.Duration
	// RelistThreshold is how long the generator is healthy after a list call has succeeded.
	// While relists are farther apart than RelistPeriod, the threshold is longer by the
	// difference. It is at least twice RelistPeriod. Default: 3 min, kubelet's.
	RelistThreshold time.Duration
	// ListTimeout limits one list call. Default: 2 min, kubelet's runtimeRequestTimeout.
	ListTimeout time.Duration
	// InspectTimeout limits the inspection of one pod. After it the inspection is tried
	// again. Default: 30 s, far above what a loaded runtime needs for a pod.
	InspectTimeout time.Duration
	// MaxInspections is the largest number of concurrent inspections. With fewer, a burst
	// of changes is reported later; with more, the calls of the workers wait longer for
	// those of a burst. An inspection that takes longer than a second is no longer counted,
	// so that hung ones do not block others. So at worst (1 + InspectTimeout in seconds)
	// times as many are under way, but at most one for each pod. Default: 64.
	MaxInspections int
}

func (o *Options) setDefaults() {
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

// Generic is a [Generator] that needs no event stream: it relists periodically and reports
// the differences. Build it with [NewGeneric].
type Generic struct{ *generator }

var _ Generator = (*Generic)(nil)

// NewGeneric returns a generator over the lists of the runtime. It reads changed pods into
// the cache, which must read from the same runtime. On a runtime that can only be listed,
// that is a [runtime.Cache] over a [runtime.ListInspector].
func NewGeneric(rt runtime.Lister, cache runtime.StatusCache, opts Options) *Generic {
	opts.setDefaults()
	return &Generic{newGenerator(rt, nil, cache, EventedOptions{Options: opts})}
}
