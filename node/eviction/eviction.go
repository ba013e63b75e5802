package eviction

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
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

// Eviction is the measurement of an eviction for a threshold: kubelet_evictions.
type Eviction struct {
	Signal Signal
	// Age is that of the reading.
	Age time.Duration
}

// IsMeasurement implements [runtime.Measurement].
func (Eviction) IsMeasurement() {}

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
