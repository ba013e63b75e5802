package statsmetrics_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/statsmetrics"
	"github.com/kubeletkit/kubeletkit/node/stats"
	"github.com/kubeletkit/kubeletkit/runtime"
)

var (
	sampleLine = regexp.MustCompile(`(?m)^([a-z_]+)\{(.*)\} \S+`)
	labelValue = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
	diskDevice = regexp.MustCompile(`^(/dev.+|mmcblk.p.+|nvme.+|rbd.+|sd.+|vd.+|xvd.+|dm-.+|dasd.+)$`)
)

// isShown reports whether the queries of kubernetes-mixin's dashboards select a series, by the labels
// that they need: a container has a name and an image, a pod a name and a namespace, and a disk has
// the name of its device.
func isShown(name string, labels map[string]string) bool {
	switch {
	case strings.HasPrefix(name, "kubelet_volume_stats_"):
		return labels["namespace"] != "" && labels["persistentvolumeclaim"] != ""
	case labels["namespace"] == "" || labels["pod"] == "":
		return false
	case strings.HasPrefix(name, "container_network_"):
		return true
	case strings.HasPrefix(name, "container_fs_"):
		return labels["container"] != "" && diskDevice.MatchString(labels["device"])
	default:
		return labels["container"] != "" && labels["image"] != ""
	}
}

// The table of dashboards in docs/operate/metrics.md is true. The metrics with "yes" are shown with every
// runtime, the others with one that reports them, and some of these with usage from cgroups.
func TestDashboards(t *testing.T) {
	data, err := os.ReadFile("../../../docs/operate/metrics.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(data), "### Workloads\n")
	require.True(t, ok)
	withCgroups := reading()
	for i := range withCgroups.Pods {
		for j := range withCgroups.Pods[i].Containers {
			withCgroups.Pods[i].Containers[j].Cgroup = &stats.CgroupUsage{
				Cache: number(1), Periods: number(2), ThrottledPeriods: number(1), Reads: number(1), Writes: number(1),
				ReadBytes: number(1), WrittenBytes: number(1),
			}
		}
	}
	plain, complete, ofCgroups := shown(t, reading(), nil), shown(t, reading(), furtherMetrics()),
		shown(t, withCgroups, nil)
	named := regexp.MustCompile("`((?:container|kubelet)_[a-z_]+)`")
	rows := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !named.MatchString(cells[2]) {
			continue
		}
		rows++
		for _, m := range named.FindAllStringSubmatch(cells[2], -1) {
			always := strings.TrimSpace(cells[3]) == "yes"
			assert.Equal(t, always, plain[m[1]], "%s with every runtime", m[1])
			assert.True(t, complete[m[1]], "%s with a runtime that reports it", m[1])
			assert.Equal(t, always || strings.Contains(cells[3], "or with usage from cgroups"), ofCgroups[m[1]],
				"%s with usage from cgroups", m[1])
		}
	}
	assert.Equal(t, 8, rows)
}

// shown returns the metrics of containers and claims that dashboards show of a reading, if the runtime
// has these further metrics.
func shown(t *testing.T, r *stats.Reading, further []runtime.MetricFamily) map[string]bool {
	t.Helper()
	_, page := get(t, statsmetrics.Cadvisor(&fixed{reading: r, families: further}, statsmetrics.CadvisorOptions{}))
	reg := prometheus.NewRegistry()
	claim := statsv1alpha1.VolumeStats{
		PVCRef: &statsv1alpha1.PVCReference{Namespace: "default", Name: "data"},
		FsStats: statsv1alpha1.FsStats{AvailableBytes: number(1), CapacityBytes: number(2), Inodes: number(3),
			InodesUsed: number(4)},
	}
	_, err := statsmetrics.NewDisk(reg,
		func() []stats.DiskUsage { return []stats.DiskUsage{{Claims: []statsv1alpha1.VolumeStats{claim}}} })
	require.NoError(t, err)
	families, err := reg.Gather()
	require.NoError(t, err)
	var disk bytes.Buffer
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&disk, f)
		require.NoError(t, err)
	}
	out := map[string]bool{}
	for _, sample := range sampleLine.FindAllStringSubmatch(page+disk.String(), -1) {
		labels := map[string]string{}
		for _, l := range labelValue.FindAllStringSubmatch(sample[2], -1) {
			labels[l[1]] = l[2]
		}
		out[sample[1]] = out[sample[1]] || isShown(sample[1], labels)
	}
	return out
}

// furtherMetrics are metrics that a runtime may have beyond the usage. Its disks have the names of
// their devices.
func furtherMetrics() (out []runtime.MetricFamily) {
	for _, kind := range []struct{ prefix, label, value, names string }{
		{"container_fs_", "device", "sda", "reads_total writes_total reads_bytes_total writes_bytes_total"},
		{"container_network_", "interface", "eth0", "receive_packets_total transmit_packets_total receive_packets_dropped_total transmit_packets_dropped_total"},
		{"container_cpu_cfs_", "", "", "periods_total throttled_periods_total"},
		{"container_memory_", "", "", "cache"},
	} {
		for name := range strings.FieldsSeq(kind.names) {
			f := runtime.MetricFamily{Name: kind.prefix + name, Help: "Help"}
			s := runtime.MetricSample{SandboxID: "s-u1", ContainerID: "c-u1main", Value: 1}
			if kind.label != "" {
				f.Labels, s.LabelValues = []string{kind.label}, []string{kind.value}
			}
			f.Samples = []runtime.MetricSample{s}
			out = append(out, f)
		}
	}
	return out
}
