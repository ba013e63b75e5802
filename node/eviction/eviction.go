package eviction

import (
	"context"
	"time"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	v1 "k8s.io/api/core/v1"
)

// Sensor reads signals. [Machine] is the default. It is safe for concurrent use.
type Sensor interface {
	// Read reads all signals that the thresholds need. One that cannot be read is missing, and the error has the cause.
	// It takes well below a millisecond as a rule, since it is called each second, and more often while little is
	// available.
	Read(ctx context.Context, thresholds []Threshold) (Readings, error)
	// Layout returns how the file systems are used.
	Layout(ctx context.Context) (Layout, error)
	// Watch calls wake when the kernel signals that a signal may have come below its threshold, until ctx ends. wake
	// does not block. An error before that means that the kernel does not signal something; wake is called for the
	// rest. Without signals the manager reads by time alone.
	Watch(ctx context.Context, thresholds []Threshold, wake func()) error
}

// Meter measures the usage of pods. [Usages] is the default.
type Meter interface {
	// Measure sets the usage of the pods of the node as far as the signal needs it. What cannot be measured until ctx
	// ends remains unknown; the error has the cause.
	Measure(ctx context.Context, node lifecycle.Node, s Signal, pods []Pod) error
}

// Metrics receives measurements. Embed [NopMetrics] in an implementation, so that methods added later do not break
// it. It is safe for concurrent use, and must not block.
type Metrics interface {
	// Evicted counts an eviction for a threshold of the signal. age is that of the reading.
	Evicted(s Signal, age time.Duration)
}

// NopMetrics is a [Metrics] that does nothing.
type NopMetrics struct{}

// Evicted implements [Metrics].
func (NopMetrics) Evicted(Signal, time.Duration) {}

// Reason is the reason of pods that are evicted or refused.
const Reason = "Evicted"

// The reasons of events about the node and its pods beside [Reason]. The first is kubelet's.
const (
	reasonThresholdMet = "EvictionThresholdMet"
	reasonCompleted    = "EvictionCompleted"
)

// ConditionTypes returns the conditions that a [Manager] decides about.
func ConditionTypes() []v1.NodeConditionType {
	return append([]v1.NodeConditionType(nil), conditions[:]...)
}
