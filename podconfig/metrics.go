package podconfig

// The measurements of a [Mux]. Kubelet has no metrics of its pod configuration, so the names in metrics/prometheus
// begin with kubeletkit_podconfig_.
type (
	// SourceCounts has the number of registered sources, and of those of them that have been seen, when one of them
	// has changed. It is the gauge kubeletkit_podconfig_sources.
	SourceCounts struct{ Registered, Seen int }
	// SourceFailed is a run of a source that has failed and is repeated: kubeletkit_podconfig_source_failures_total.
	SourceFailed struct{ Source string }
	// ChangeDelivered is a change that the reader has received, with the number of its pods:
	// kubeletkit_podconfig_changes_total and kubeletkit_podconfig_changed_pods_total.
	ChangeDelivered struct {
		Source string
		Op     Op
		Pods   int
	}
	// PodRejected is a pod that was rejected: kubeletkit_podconfig_rejected_pods_total.
	PodRejected struct{ Source string }
)

// IsMeasurement implements [runtime.Measurement].
func (SourceCounts) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (SourceFailed) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (ChangeDelivered) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (PodRejected) IsMeasurement() {}
