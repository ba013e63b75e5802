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
	// Of claims whose containers differ in their SELinux labels, and of volumes whose pods do, those are refused whose
	// pods do not start.
	refused, allowed, refusedVolumes, allowedVolumes, admitted *prometheus.GaugeVec

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
	seLinux := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "volume_manager_selinux_" + name + "_total",
			Help: "[ALPHA] " + help}, append(labels, "access_mode"))
	}
	const (
		plugin = "volume_plugin"
		ofPod  = "Number of errors when a Pod defines different SELinux contexts for its containers that use the " +
			"same volume. "
		ofVolume = "Number of errors when a Pod uses a volume that is already mounted with a different SELinux context " +
			"than the Pod needs. "
		isError = "Kubelet can't start such a Pod then and it will retry, therefore value of this metric may not " +
			"represent the actual nr. of Pods."
		isWarning = "They are not errors yet, but they will become real errors when SELinuxMountReadWriteOncePod " +
			"feature is expanded to all volume access modes."
	)
	m.refused = seLinux("pod_context_mismatch_errors", ofPod+isError)
	m.allowed = seLinux("pod_context_mismatch_warnings", ofPod+isWarning)
	m.refusedVolumes = seLinux("volume_context_mismatch_errors", ofVolume+isError, plugin)
	m.allowedVolumes = seLinux("volume_context_mismatch_warnings", ofVolume+isWarning, plugin)
	m.admitted = seLinux("volumes_admitted",
		"Number of volumes whose SELinux context was fine and will be mounted with mount -o context option.", plugin)
	if err := collector.Register(reg, "volumes", collector.Group{m.duration, m.calls, m.refused, m.allowed,
		m.refusedVolumes, m.allowedVolumes, m.admitted, totalVolumes{m}}); err != nil {
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
		ofPod, ofVolume := m.allowed, m.allowedVolumes
		if v.Refused {
			ofPod, ofVolume = m.refused, m.refusedVolumes
		}
		if v.Plugin == "" {
			ofPod.WithLabelValues(v.AccessMode).Inc()
		} else {
			ofVolume.WithLabelValues(v.Plugin, v.AccessMode).Inc()
		}
	case volume.SELinuxAdmitted:
		m.admitted.WithLabelValues(v.Plugin, v.AccessMode).Inc()
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
