package podconfig

// Metrics receives the metrics of a [Mux]. Kubelet has no metrics of its pod
// configuration, so names begin with kubeletkit_podconfig_. Its methods must not block
// and must not call the Mux. They are safe for concurrent use.
//
// An implementation should embed [NopMetrics], so that it stays complete when a method is
// added.
type Metrics interface {
	// Sources is called when one of the numbers changes: how many sources are registered,
	// and how many of these have been seen. kubeletkit_podconfig_sources, a gauge.
	Sources(registered, seen int)
	// SourceFailed is called after each run of a source that failed and is repeated.
	// kubeletkit_podconfig_source_failures_total.
	SourceFailed(source string)
	// ChangeDelivered is called for each change that the reader has received, with the
	// number of its pods. kubeletkit_podconfig_changes_total and
	// kubeletkit_podconfig_changed_pods_total.
	ChangeDelivered(source string, op Op, pods int)
	// PodRejected is called for each pod that is rejected, once for as long as it is.
	// kubeletkit_podconfig_rejected_pods_total.
	PodRejected(source string)
}

// NopMetrics discards all metrics. Embed it to implement some methods of [Metrics] only.
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
