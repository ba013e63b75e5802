package statsmetrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/stats"
)

// Disk has the metrics of claims and of logs in kubelet's /metrics
// (pkg/kubelet/metrics/collectors at 1.37).
type Disk struct {
	read   func() []stats.DiskUsage
	logs   *prometheus.Desc
	claims []claimMetric

	mu sync.Mutex
	// metrics are those of usage, which a reader returns again until it has measured something.
	usage   []stats.DiskUsage
	metrics []prometheus.Metric
}

type claimMetric struct {
	desc  *prometheus.Desc
	value func(v *statsv1alpha1.VolumeStats) *uint64
}

var _ prometheus.Collector = (*Disk)(nil)

// NewDisk registers the metrics. read returns the usage of volumes and logs, the latest measurement
// first, and does not change what it has returned: the method Disk of a [stats.Collector]. The error names the metric
// that the registry refused; then none is registered.
func NewDisk(reg prometheus.Registerer, read func() []stats.DiskUsage) (*Disk, error) {
	claim := func(name, help string, value func(v *statsv1alpha1.VolumeStats) *uint64) claimMetric {
		return claimMetric{prometheus.NewDesc("kubelet_volume_stats_"+name, "[ALPHA] "+help,
			[]string{"namespace", "persistentvolumeclaim"}, nil), value}
	}
	type v = statsv1alpha1.VolumeStats
	d := &Disk{
		read: read,
		logs: prometheus.NewDesc("kubelet_container_log_filesystem_used_bytes",
			"[ALPHA] Bytes used by the container's logs on the filesystem.",
			[]string{"uid", "namespace", "pod", "container"}, nil),
		claims: []claimMetric{
			claim("capacity_bytes", "Capacity in bytes of the volume", func(v *v) *uint64 { return v.CapacityBytes }),
			claim("available_bytes", "Number of available bytes in the volume",
				func(v *v) *uint64 { return v.AvailableBytes }),
			claim("used_bytes", "Number of used bytes in the volume", func(v *v) *uint64 { return v.UsedBytes }),
			claim("inodes", "Maximum number of inodes in the volume", func(v *v) *uint64 { return v.Inodes }),
			claim("inodes_free", "Number of free inodes in the volume", func(v *v) *uint64 { return v.InodesFree }),
			claim("inodes_used", "Number of used inodes in the volume", func(v *v) *uint64 { return v.InodesUsed }),
		},
	}
	if err := collector.Register(reg, "volumes and logs", collector.Group{d}); err != nil {
		return nil, err
	}
	return d, nil
}

// Describe implements [prometheus.Collector].
func (d *Disk) Describe(ch chan<- *prometheus.Desc) {
	ch <- d.logs
	for _, c := range d.claims {
		ch <- c.desc
	}
}

// Collect implements [prometheus.Collector]. It reads nothing; it requests a measurement for
// the next time.
func (d *Disk) Collect(ch chan<- prometheus.Metric) {
	for _, m := range d.of(d.read()) {
		ch <- m
	}
}

// of returns the metrics of the usage, which are made once.
func (d *Disk) of(usage []stats.DiskUsage) []prometheus.Metric {
	d.mu.Lock()
	defer d.mu.Unlock()
	if same(usage, d.usage) {
		return d.metrics
	}
	var out []prometheus.Metric
	seen := map[statsv1alpha1.PVCReference]struct{}{}
	for _, pod := range usage {
		for name, bytes := range pod.Logs {
			out = append(out, prometheus.MustNewConstMetric(d.logs, prometheus.GaugeValue, float64(bytes),
				string(pod.Pod.UID), pod.Pod.Namespace, pod.Pod.Name, name))
		}
		for i := range pod.Claims {
			v := &pod.Claims[i]
			if _, twice := seen[*v.PVCRef]; twice {
				continue
			}
			seen[*v.PVCRef] = struct{}{}
			for _, c := range d.claims {
				if n := c.value(v); n != nil {
					out = append(out, prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(*n),
						v.PVCRef.Namespace, v.PVCRef.Name))
				}
			}
		}
	}
	d.usage, d.metrics = usage, out
	return out
}
