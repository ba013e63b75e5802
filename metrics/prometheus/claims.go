package prommetrics

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

// ResourceClaims are the metrics of resource claims, with kubelet's names. Its methods are for the options of packages
// node/dra and node/dra/plugin.
type ResourceClaims struct {
	operations, calls *prometheus.HistogramVec
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
	m := &ResourceClaims{
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
	if err := collector.Register(reg, "resource claims", collector.Group{m.operations, m.calls, m.inUse}); err != nil {
		return nil, err
	}
	return m, nil
}

// Operation measures the preparation of the claims of a pod, or its end.
func (m *ResourceClaims) Operation(name string, took time.Duration, err error) {
	m.operations.WithLabelValues(name, strconv.FormatBool(err != nil)).Observe(took.Seconds())
}

// Call measures a call of a driver.
func (m *ResourceClaims) Call(driver, method, code string, took time.Duration) {
	m.calls.WithLabelValues(driver, method, code).Observe(took.Seconds())
}

// InUse sets the number of claims that are prepared, by driver and of all. The map is not changed later.
func (m *ResourceClaims) InUse(byDriver map[string]int, all int) {
	m.inUse.counts.Store(&claimCounts{byDriver, all})
}

// claimsInUse has only the drivers whose claims are in use.
type claimsInUse struct {
	desc   *prometheus.Desc
	counts atomic.Pointer[claimCounts]
}

type claimCounts struct {
	byDriver map[string]int
	all      int
}

// Describe implements [prometheus.Collector].
func (c *claimsInUse) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector].
func (c *claimsInUse) Collect(ch chan<- prometheus.Metric) {
	counts := c.counts.Load()
	if counts == nil {
		counts = &claimCounts{}
	}
	ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(counts.all), "<any>")
	for driver, n := range counts.byDriver {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), driver)
	}
}
