package runtime

import (
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
)

// Observer receives what a part of an agent does: its log, events and records of pods, and measurements. The options
// of each part embed one. The zero value logs to package slog and discards the rest.
//
// The functions may block: each has a queue of 4096, and a goroutine while it is not empty, which calls the function
// with one value at a time and in order. The part does not wait for it. What does not fit is dropped, and the number is
// logged. A panic is recovered, and the first one is logged. A part that has an end, such as that of its Run, waits
// then, 3 s at most, for functions that have not returned.
type Observer struct {
	// Logger is called directly, and must not block. Default: that of package slog.
	Logger logr.Logger
	// Event receives the events of pods and of the node. nil: they are discarded.
	Event EventFunc
	// Record receives why something happens to a pod. nil: records are discarded.
	Record RecordFunc
	// Measure receives measurements. nil: they are discarded.
	Measure MeasureFunc
	// NonBlocking means that Event, Record and Measure neither block nor panic, and are safe for concurrent use, such
	// as those of the parts of an agent and the Record of a history.Memory. They are called directly, so that what
	// several parts report is in order: a record comes before what follows from it.
	NonBlocking bool
}

// Measurement is something that a part has measured. It is a value of a type that the package of the part exports, such
// as pleg.Relisted. A receiver switches on the type, and ignores types that it does not have: more are added later.
type Measurement interface {
	// IsMeasurement marks the type.
	IsMeasurement()
}

// CgroupChange is the measurement of a change of a cgroup, also of one that has failed:
// kubelet_cgroup_manager_duration_seconds. It is here since package node/cgroup needs libraries that those who receive
// measurements do without. The cgroups of pods that are gone are removed in one pass, and measured as one.
type CgroupChange struct {
	// Operation is [CgroupCreate], [CgroupUpdate] or [CgroupDestroy].
	Operation string
	Took      time.Duration
}

// The operations of a [CgroupChange], in kubelet's words.
const (
	CgroupCreate  = "create"
	CgroupUpdate  = "update"
	CgroupDestroy = "destroy"
)

// IsMeasurement implements [Measurement].
func (CgroupChange) IsMeasurement() {}

// MeasureFunc receives measurements. Those of metrics/prometheus make kubelet's metrics of them. A nil MeasureFunc
// discards measurements if it is called through [MeasureFunc.Emit].
type MeasureFunc func(Measurement)

// Emit calls f with the measurement. If f is nil, Emit does nothing.
func (f MeasureFunc) Emit(m Measurement) {
	if f != nil {
		f(m)
	}
}

// Queued returns an observer that does not block, as the parts use it: its Logger is set, and its functions queue their
// values for those of o, or are those of o if o is NonBlocking. wait returns when the functions have received
// everything, or after 3 s.
func (o Observer) Queued() (queued Observer, wait func()) {
	o.Logger = logging.OrDefault(o.Logger)
	if o.NonBlocking {
		return o, func() {}
	}
	queued = Observer{Logger: o.Logger, NonBlocking: true}
	var events, records, measurements flow.Waiter
	queued.Event, events = flow.Observe("Event", o.Event, o.Logger)
	queued.Record, records = flow.Observe("Record", o.Record, o.Logger)
	queued.Measure, measurements = flow.Observe("Measure", o.Measure, o.Logger)
	return queued, func() { flow.WaitForObservers(events, records, measurements) }
}

// Named returns o with the name added to that of the Logger.
func (o Observer) Named(name string) Observer {
	o.Logger = logging.OrDefault(o.Logger).WithName(name)
	return o
}
