package status

import (
	"time"
)

// The measurements of a [Store].
type (
	// Delivered is a status that the sink has accepted.
	Delivered struct {
		// Latency is the time since the first change that the delivery contains:
		// kubelet_pod_status_sync_duration_seconds.
		Latency time.Duration
	}
	// DeliveryFailed is a call of the sink that has failed and will be repeated, also one that has exceeded
	// [Options].DeliveryTimeout.
	DeliveryFailed struct{}
	// DeliveriesHanging has the number of calls of the sink that have not returned although their deadline has passed,
	// whenever it changes.
	DeliveriesHanging struct{ Calls int }
	// PodStarted is a pod whose phase has become Running. There is none for a pod that ran before its first status, as
	// after a restart of the agent.
	PodStarted struct {
		// Took is the time since its first status: kubelet_pod_start_duration_seconds.
		Took time.Duration
	}
)

// IsMeasurement implements [runtime.Measurement].
func (Delivered) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (DeliveryFailed) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (DeliveriesHanging) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (PodStarted) IsMeasurement() {}
