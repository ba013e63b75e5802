package prommetrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/podsync"
)

// SyncLoop has kubelet's metrics of what the sync loop decides about pods and their resizes.
type SyncLoop struct {
	desired, active                 *prometheus.GaugeVec
	containers                      prometheus.Histogram
	rejections, preemptions         *prometheus.CounterVec
	requested, infeasible, accepted *prometheus.CounterVec
	pending                         *prometheus.GaugeVec
	inProgress                      prometheus.Gauge
	deferred                        *prometheus.HistogramVec
}

// NewSyncLoop registers the metrics of the sync loop of one agent. The error names the metric that the registry
// refused; then none is registered.
func NewSyncLoop(reg prometheus.Registerer) (*SyncLoop, error) {
	const priorities = "Label 'priority_bucket' classifies the pod priority (system-critical: >=2000000000, high: " +
		"100000..1999999999, medium: 1..99999, normal: 0/default, low: -999..-1, very-low: <=-1000, unknown: nil pod)."
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return collector.Counters(collector.Kubelet(name, help), labels...)
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return collector.Gauges(collector.Kubelet(name, help), labels...)
	}
	m := &SyncLoop{
		desired: gauges("desired_pods", "The number of pods the kubelet is being instructed to run. static is true if "+
			"the pod is not from the apiserver.", "static"),
		active: gauges("active_pods", "The number of pods the kubelet considers active and which are being considered "+
			"when admitting new pods. static is true if the pod is not from the apiserver.", "static"),
		containers: prometheus.NewHistogram(collector.HistogramOpts(collector.Kubelet("containers_per_pod_count",
			"The number of containers per pod."), prometheus.ExponentialBuckets(1, 2, 5))),
		rejections: counters("admission_rejections_total", "Cumulative number pod admission rejections by the Kubelet.",
			"reason"),
		preemptions: counters("preemptions", "Cumulative number of pod preemptions by preemption resource",
			"preemption_signal"),
		requested: counters("container_requested_resizes_total", "Number of requested resizes, counted at the "+
			"container level. Different resources on the same container are counted separately. The 'requirement' "+
			"label refers to 'memory' or 'limits'; the 'operation' label can be one of 'add', 'remove', 'increase' or "+
			"'decrease'.", "resource", "requirement", "operation"),
		infeasible: counters("pod_infeasible_resizes_total", "Number of infeasible resizes for pods.", "reason_detail"),
		accepted: counters("pod_deferred_accepted_resizes_total", "Cumulative number of resizes that were accepted "+
			"after being deferred.", "retry_trigger"),
		pending: gauges("pod_pending_resizes", "Number of pending resizes for pods. "+priorities+" Label 'reason' "+
			"describes the state (deferred, infeasible).", "reason", "priority_bucket"),
		inProgress: collector.Gauge(collector.Kubelet("pod_in_progress_resizes",
			"Number of in-progress resizes for pods.")),
		deferred: prometheus.NewHistogramVec(collector.HistogramOpts(collector.Kubelet(
			"pod_deferred_resize_duration_seconds", "Duration in seconds that a pod resize remains deferred before "+
				"completion. "+priorities+" Label 'resolution' describes how the deferred resize was resolved "+
				"(accepted, reverted, terminated)."),
			[]float64{5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600}),
			[]string{"resolution", "priority_bucket"}),
	}
	return m, collector.Register(reg, "sync loop", collector.Group{m.desired, m.active, m.containers, m.rejections,
		m.preemptions, m.requested, m.infeasible, m.accepted, m.pending, m.inProgress, m.deferred})
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of packages syncloop and podsync.
func (m *SyncLoop) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case syncloop.Counts:
		for i, static := range []string{"", "true"} { // kubelet's values
			m.desired.WithLabelValues(static).Set(float64(v.Desired[i]))
			m.active.WithLabelValues(static).Set(float64(v.Active[i]))
		}
	case syncloop.Admitted:
		m.containers.Observe(float64(v.Containers))
	case syncloop.Refused:
		m.rejections.WithLabelValues(rejection(v.Reason)).Inc()
	case syncloop.Preempted:
		m.preemptions.WithLabelValues(string(v.Resource)).Inc()
	case syncloop.ResizeRequested:
		m.requested.WithLabelValues(string(v.Resource), v.Requirement, v.Operation).Inc()
	case syncloop.ResizesPending:
		m.pending.Reset()
		for kind, n := range v {
			m.pending.WithLabelValues(strings.ToLower(kind.Reason), kind.Priority).Set(float64(n))
		}
	case syncloop.ResizeInfeasible:
		m.infeasible.WithLabelValues(v.Detail).Inc()
	case syncloop.DeferredResizeEnded:
		m.deferred.WithLabelValues(v.Resolution, v.Priority).Observe(v.Took.Seconds())
		if v.Resolution == syncloop.ResizeAccepted {
			m.accepted.WithLabelValues("periodic_retry").Inc()
		}
	case podsync.ResizeInProgress:
		if v.Began {
			m.inProgress.Inc()
		} else {
			m.inProgress.Dec()
		}
	}
}

// rejection returns kubelet's value of the label reason, of which there is a small number.
func rejection(reason string) string {
	known := strings.Fields(`AppArmor PodOSSelectorNodeLabelDoesNotMatch PodOSNotSupported InvalidNodeInfo
		InitContainerRestartPolicyForbidden SupplementalGroupsPolicyNotSupported UnexpectedAdmissionError UnknownReason
		UnexpectedPredicateFailureType OutOfcpu OutOfmemory OutOfephemeral-storage OutOfpods
		PodLevelResourcesNotSupported PodFeatureUnsupported Evicted SysctlForbidden TopologyAffinityError NodeShutdown
		VolumeAttachmentLimitExceeded`)
	switch {
	case slices.Contains(known, reason), reason == "node(s) had taints that the pod didn't tolerate":
		return reason
	case strings.HasPrefix(reason, "OutOf"):
		return "OutOfExtendedResources"
	default:
		return "Other"
	}
}
