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

// Attempt is the measurement of an attempt that was not interrupted: prober_probe_total and
// prober_probe_duration_seconds. kubelet counts Warning as success, does not count Unknown, and has no duration of
// failures.
type Attempt struct {
	Probe   ProbeRef
	Outcome Outcome
	// Took includes repetitions.
	Took time.Duration
}

// ProbeRemoved is the measurement of a probe that has ended, so that its series can be deleted. No Attempt of it
// follows, unless it is added again.
type ProbeRemoved struct{ Probe ProbeRef }

// IsMeasurement implements [runtime.Measurement].
func (Attempt) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (ProbeRemoved) IsMeasurement() {}
