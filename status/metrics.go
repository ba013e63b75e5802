package status

import (
	"time"
)

// Metrics receives measurements of a [Store]. The methods are called one at a time, and nothing waits for them. Embed
// [NopMetrics] in implementations, so that methods added later do not break them.
type Metrics interface {
	// StatusDelivered is called when the sink has accepted a status. latency is the
	// time since the first change that the delivery contains
	// (kubelet_pod_status_sync_duration_seconds).
	StatusDelivered(latency time.Duration)
	// DeliveryFailed is called when a call of the sink has failed and will be
	// repeated, also a call that has exceeded [Options.DeliveryTimeout].
	DeliveryFailed()
	// DeliveriesHanging is called with the number of calls of the sink that have not
	// returned although their deadline has passed, whenever that number changes.
	DeliveriesHanging(n int)
	// PodStarted is called when the phase of a pod has become Running, with the time since its
	// first status (pod_start_duration_seconds). It is not called for a pod that ran before its
	// first status, as after a restart of the agent.
	PodStarted(took time.Duration)
}

// NopMetrics implements [Metrics] and does nothing. It is to be embedded.
type NopMetrics struct{}

var _ Metrics = NopMetrics{}

// StatusDelivered implements [Metrics].
func (NopMetrics) StatusDelivered(time.Duration) {}

// DeliveryFailed implements [Metrics].
func (NopMetrics) DeliveryFailed() {}

// DeliveriesHanging implements [Metrics].
func (NopMetrics) DeliveriesHanging(int) {}

// PodStarted implements [Metrics].
func (NopMetrics) PodStarted(time.Duration) {}
