package volume

import (
	"time"
)

// Metrics receives measurements of a [Reconciler]. The methods are called one at a
// time, and nothing waits for them. Embed [NopMetrics] in implementations, so that methods
// added later do not break them.
type Metrics interface {
	// SetUp is called after each call of a plugin's SetUp, also those that found the
	// volume ready (storage_operation_duration_seconds with operation_name
	// volume_mount; its status is success or fail-unknown).
	SetUp(plugin string, took time.Duration, err error)
	// TearDown is called after each call of a plugin's TearDown
	// (storage_operation_duration_seconds with operation_name volume_unmount).
	TearDown(plugin string, took time.Duration, err error)
}

// NopMetrics implements [Metrics] and does nothing. It is to be embedded.
type NopMetrics struct{}

var _ Metrics = NopMetrics{}

// SetUp implements [Metrics].
func (NopMetrics) SetUp(string, time.Duration, error) {}

// TearDown implements [Metrics].
func (NopMetrics) TearDown(string, time.Duration, error) {}
