package podconfig

// Metrics receives the measurements of a [Mux]. Its methods are called one at a time, and nothing waits for them.
// Implementations embed [NopMetrics], so that methods added later do not break them. Kubelet has no metrics of its pod
// configuration, so the names in metrics/prometheus begin with kubeletkit_podconfig_.
type Metrics interface {
	// Sources is called when one of the numbers has changed: the registered sources, and
	// those of them that have been seen. It is the gauge kubeletkit_podconfig_sources.
	Sources(registered, seen int)
	// SourceFailed is called after each run of a source that has failed and is repeated:
	// kubeletkit_podconfig_source_failures_total.
	SourceFailed(source string)
	// ChangeDelivered is called for each change that the reader has received, with the
	// number of its pods: kubeletkit_podconfig_changes_total and
	// kubeletkit_podconfig_changed_pods_total.
	ChangeDelivered(source string, op Op, pods int)
	// PodRejected is called when a pod is rejected, together with [Options].Event:
	// kubeletkit_podconfig_rejected_pods_total.
	PodRejected(source string)
}

// NopMetrics discards all measurements.
type NopMetrics struct{}

var _ Metrics = NopMetrics{}

// Sources implements [Metrics].
func (NopMetrics) Sources(registered, seen int) {}

// SourceFailed implements [Metrics].
func (NopMetrics) SourceFailed(source string) {}

// ChangeDelivered implements [Metrics].
func (NopMetrics) ChangeDelivered(source string, op Op, pods int) {}

// PodRejected implements [Metrics].
func (NopMetrics) PodRejected(source string) {}
