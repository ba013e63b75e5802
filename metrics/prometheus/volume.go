package prommetrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Volumes has the metrics of package volume under the name that kubelet has for operations of storage
// (pkg/volume/util/metrics.go at 1.37). Unlike there, each sync of a pod with volumes
// counts, since plugins find out themselves that a volume is ready.
type Volumes struct {
	duration *prometheus.HistogramVec
	// calls are those of CSI drivers.
	calls *prometheus.HistogramVec
	// seLinux has claims whose containers differ in their labels; refused are those whose pods do not start.
	refused, allowed *prometheus.GaugeVec

	total *prometheus.Desc

	mu   sync.Mutex
	pods map[types.UID]volume.PodVolumes
}

// NewVolumes registers the metrics of one agent's volumes. The error names the metric that
// the registry refused; then none is registered.
func NewVolumes(reg prometheus.Registerer) (*Volumes, error) {
	buckets := []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	m := &Volumes{
		pods: map[types.UID]volume.PodVolumes{},
		total: prometheus.NewDesc("volume_manager_total_volumes", "[ALPHA] Number of volumes in Volume Manager",
			[]string{"plugin_name", "state"}, nil),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "storage_operation_duration_seconds", Help: "[BETA] Storage operation duration",
			Buckets: buckets,
		}, []string{"volume_plugin", "operation_name", "status", "migrated"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "csi", Name: "operations_seconds", Buckets: buckets,
			Help: "[ALPHA] Container Storage Interface operation duration with gRPC error code status total",
		}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"}),
	}
	conflicts := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "[ALPHA] " + help},
			[]string{"access_mode"})
	}
	m.refused = conflicts("volume_manager_selinux_pod_context_mismatch_errors_total",
		"Number of errors when a Pod defines different SELinux contexts for its containers that use the same volume. "+
			"Kubelet can't start such a Pod then and it will retry, therefore value of this metric may not represent "+
			"the actual nr. of Pods.")
	m.allowed = conflicts("volume_manager_selinux_pod_context_mismatch_warnings_total",
		"Number of errors when a Pod defines different SELinux contexts for its containers that use the same volume. "+
			"They are not errors yet, but they will become real errors when SELinuxMountReadWriteOncePod feature is "+
			"expanded to all volume access modes.")
	if err := collector.Register(reg, "volumes", collector.Group{m.duration, m.calls, m.refused, m.allowed,
		totalVolumes{m}}); err != nil {
		return nil, err
	}
	return m, nil
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of package volume.
func (m *Volumes) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case volume.SetUpCall:
		m.observe(v.Plugin, "volume_mount", v.Took, v.Err)
	case volume.SELinuxConflict:
		counter := m.allowed
		if v.Refused {
			counter = m.refused
		}
		counter.WithLabelValues(v.AccessMode).Inc()
	case volume.DriverCall:
		m.calls.WithLabelValues(v.Driver, v.Method, v.Code, "false").Observe(v.Took.Seconds())
	case volume.TearDownCall:
		m.observe(v.Plugin, "volume_unmount", v.Took, v.Err)
	case volume.PodVolumes:
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(v.Desired)+len(v.Actual) == 0 {
			delete(m.pods, v.Pod.UID)
		} else {
			m.pods[v.Pod.UID] = v
		}
	}
}

func (m *Volumes) observe(plugin, operation string, took time.Duration, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.duration.WithLabelValues(plugin, operation, status, "false").Observe(took.Seconds())
}

// totalVolumes is the collector of volume_manager_total_volumes.
type totalVolumes struct{ m *Volumes }

// Describe implements [prometheus.Collector].
func (t totalVolumes) Describe(ch chan<- *prometheus.Desc) { ch <- t.m.total }

// Collect implements [prometheus.Collector].
func (t totalVolumes) Collect(ch chan<- prometheus.Metric) {
	desired, actual := map[string]int{}, map[string]int{}
	t.m.mu.Lock()
	for _, pod := range t.m.pods {
		for plugin, n := range pod.Desired {
			desired[plugin] += n
		}
		for plugin, n := range pod.Actual {
			actual[plugin] += n
		}
	}
	t.m.mu.Unlock()
	for state, counts := range map[string]map[string]int{"desired_state_of_world": desired,
		"actual_state_of_world": actual} {
		for plugin, n := range counts {
			ch <- prometheus.MustNewConstMetric(t.m.total, prometheus.GaugeValue, float64(n), plugin, state)
		}
	}
}
