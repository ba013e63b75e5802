package status

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
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
	// StartDelivered is a pod whose status the sink has accepted for the first time with all containers running:
	// kubelet_pod_start_total_duration_seconds, and kubelet_pod_start_sli_duration_seconds without the time of pulls
	// and init containers. There is none for static pods, and for a pod that had a status when this Store received it,
	// as after a restart of the agent.
	StartDelivered struct {
		// Pod and Status must not be changed.
		Pod    *v1.Pod
		Status *v1.PodStatus
		// At is the time of the delivery.
		At time.Time
	}
)

// allStarted reports whether all containers run.
func allStarted(s *v1.PodStatus) bool {
	return len(s.ContainerStatuses) > 0 && !slices.ContainsFunc(s.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Running == nil || c.State.Running.StartedAt.IsZero()
	})
}

// IsMeasurement implements [runtime.Measurement].
func (StartDelivered) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Delivered) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (DeliveryFailed) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (DeliveriesHanging) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (PodStarted) IsMeasurement() {}
