package gc

import "time"

// Metrics receives the measurements of a [Collector]. Its methods must not block.
// Embed [NopMetrics] in an implementation, so that a method which is added later does
// not break it. kubelet has no metrics for its collector of dead containers.
type Metrics interface {
	// Collected reports a collection that has ended.
	Collected(Collection)
}

// NopMetrics discards all measurements.
type NopMetrics struct{}

var _ Metrics = NopMetrics{}

// Collected implements [Metrics].
func (NopMetrics) Collected(Collection) {}

// Collection describes a collection that has ended.
type Collection struct {
	Began, Ended time.Time
	// Containers, Sandboxes and LogDirs count what was removed.
	Containers, Sandboxes, LogDirs int
	// Failed counts what could not be removed.
	Failed int
	// Err joins all errors; nil if everything in the plan was removed.
	Err error
}
