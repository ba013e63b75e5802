package prober

import (
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ProbeRef names a probe of a container: the labels of its metrics.
type ProbeRef struct {
	Pod       runtime.PodRef
	Container string
	Kind      runtime.ProbeKind
}

// Metrics receives measurements of a [Prober]. The methods are called one at a time, and
// nothing waits for them. Embed [NopMetrics] in implementations, so that methods added later do not break them.
type Metrics interface {
	// Attempted is called after each attempt that was not interrupted, with the time
	// that it took, repetitions included (prober_probe_total,
	// prober_probe_duration_seconds; kubelet counts Warning as success, does not count
	// Unknown, and has no duration of failures).
	Attempted(probe ProbeRef, outcome Outcome, took time.Duration)
	// Removed is called when the probe has ended, so that its series can be deleted.
	// Attempted is not called for it afterwards, unless it is added again.
	Removed(probe ProbeRef)
}

// NopMetrics implements [Metrics] and does nothing. It is to be embedded.
type NopMetrics struct{}

var _ Metrics = NopMetrics{}

// Attempted implements [Metrics].
func (NopMetrics) Attempted(ProbeRef, Outcome, time.Duration) {}

// Removed implements [Metrics].
func (NopMetrics) Removed(ProbeRef) {}
