package prommetrics

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/dra"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// ResourceClaims are the metrics of resource claims, with kubelet's names.
type ResourceClaims struct {
	operations, calls *prometheus.HistogramVec
	skips             map[resourceapi.SkipNodeOperation]*prometheus.CounterVec
	inUse             *claimsInUse
}

// NewResourceClaims registers the metrics of one agent. The error names the metric that the registry refused; then none
// is registered.
func NewResourceClaims(reg prometheus.Registerer) (*ResourceClaims, error) {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "dra", Name: name, Help: "[ALPHA] " + help, Buckets: prometheus.ExponentialBucketsRange(.1, 40,
				15),
		}, labels)
	}
	skips := func(name string, op resourceapi.SkipNodeOperation) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "dra", Name: name,
			Help: "[ALPHA] Cumulative number of times " + string(op) +
				" gRPC calls were skipped due to SkipNodeOperations.",
		}, []string{"driver_name"})
	}
	const prepare, unprepare = resourceapi.SkipNodeOperationNodePrepareResources,
		resourceapi.SkipNodeOperationNodeUnprepareResources
	m := &ResourceClaims{
		skips: map[resourceapi.SkipNodeOperation]*prometheus.CounterVec{
			prepare:   skips("node_prepare_skips_total", prepare),
			unprepare: skips("node_unprepare_skips_total", unprepare),
		},
		operations: histogram("operations_duration_seconds", "Duration of handling all ResourceClaims of a pod when "+
			"the pod starts or stops, "+
			"by the operation (PrepareResources or UnprepareResources) and whether it has failed.", "operation_name",
			"is_error"),
		calls: histogram("grpc_operations_duration_seconds", "Duration in seconds of the DRA gRPC operations",
			"driver_name", "method_name", "grpc_status_code"),
		inUse: &claimsInUse{desc: prometheus.NewDesc("dra_resource_claims_in_use",
			"[ALPHA] The number of ResourceClaims that are currently in use on the node, "+
				"by driver, and of all drivers with the name <any>. A claim may have devices of several drivers.",
			[]string{"driver_name"}, nil)},
	}
	if err := collector.Register(reg, "resource claims", collector.Group{m.operations, m.calls, m.inUse,
		m.skips[prepare], m.skips[unprepare]}); err != nil {
		return nil, err
	}
	return m, nil
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of package dra.
func (m *ResourceClaims) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case dra.Operation:
		m.operations.WithLabelValues(v.Name, strconv.FormatBool(v.Err != nil)).Observe(v.Took.Seconds())
	case dra.Call:
		m.calls.WithLabelValues(v.Driver, v.Method, v.Code).Observe(v.Took.Seconds())
	case dra.Skip:
		if c := m.skips[v.Operation]; c != nil {
			c.WithLabelValues(v.Driver).Inc()
		}
	case dra.InUse:
		m.inUse.counts.Store(&v)
	}
}

// claimsInUse has only the drivers whose claims are in use.
type claimsInUse struct {
	desc   *prometheus.Desc
	counts atomic.Pointer[dra.InUse]
}

// Describe implements [prometheus.Collector].
func (c *claimsInUse) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector].
func (c *claimsInUse) Collect(ch chan<- prometheus.Metric) {
	counts := c.counts.Load()
	if counts == nil {
		counts = &dra.InUse{}
	}
	ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(counts.All), "<any>")
	for driver, n := range counts.ByDriver {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), driver)
	}
}
