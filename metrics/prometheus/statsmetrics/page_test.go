package statsmetrics_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/statsmetrics"
	"github.com/kubeletkit/kubeletkit/node/stats"
	"github.com/kubeletkit/kubeletkit/runtime"
)

var update = flag.Bool("update", false, "write the golden files")

// fixed is a reader with one reading.
type fixed struct {
	reading  *stats.Reading
	families []runtime.MetricFamily
	err      error
}

func (f *fixed) Read(context.Context) (*stats.Reading, error) { return f.reading, f.err }
func (f *fixed) Extra() []runtime.MetricFamily                { return f.families }

func number(n uint64) *uint64 { return &n }

func cpu(ns uint64) *statsv1alpha1.CPUStats {
	return &statsv1alpha1.CPUStats{Time: metav1.Unix(1000, 5e6), UsageCoreNanoSeconds: &ns,
		PSI: &statsv1alpha1.PSIStats{Some: statsv1alpha1.PSIData{Total: 1500}}}
}

func memory(bytes uint64) *statsv1alpha1.MemoryStats {
	return &statsv1alpha1.MemoryStats{Time: metav1.Unix(1001, 0), WorkingSetBytes: &bytes,
		UsageBytes: number(bytes + 1), RSSBytes: number(bytes - 1), PageFaults: number(7), MajorPageFaults: number(0)}
}

// evil is a name that no API server admits, as of a container in a runtime that lies.
const evil = "x\"} 1\nforged{a=\"\\\xff"

func reading() *stats.Reading {
	r := &stats.Reading{Time: time.Unix(1002, 0), Machine: stats.Machine{Cores: 4, Memory: 8 << 30,
		ID: "m", BootID: "b"}}
	r.Summary.Node = statsv1alpha1.NodeStats{CPU: cpu(5e9), Memory: memory(1 << 30),
		Swap: &statsv1alpha1.SwapStats{Time: metav1.Unix(1001, 0), SwapUsageBytes: number(0),
			SwapAvailableBytes: number(9)}}
	network := &statsv1alpha1.NetworkStats{Time: metav1.Unix(1000, 0),
		Interfaces: []statsv1alpha1.InterfaceStats{{Name: "eth0", RxBytes: number(10), TxBytes: number(11),
			RxErrors: number(1)}}}
	add := func(name, uid string, shadowed bool, containers ...string) {
		p := statsv1alpha1.PodStats{PodRef: statsv1alpha1.PodReference{Namespace: "default", Name: name, UID: uid},
			StartTime: metav1.Unix(900, 0), CPU: cpu(3e9), Memory: memory(300), Network: network,
			ProcessStats: &statsv1alpha1.ProcessStats{ProcessCount: number(3)}}
		d := stats.PodDetails{SandboxID: "s-" + uid, Shadowed: shadowed}
		for _, c := range containers {
			p.Containers = append(p.Containers, statsv1alpha1.ContainerStats{
				Name: c, StartTime: metav1.Unix(901, 0), CPU: cpu(1234567891), Memory: memory(100),
				Swap: &statsv1alpha1.SwapStats{Time: metav1.Unix(1001, 0), SwapUsageBytes: number(1),
					SwapAvailableBytes: number(9)},
				Rootfs: &statsv1alpha1.FsStats{Time: metav1.Unix(1000, 0), UsedBytes: number(4096),
					CapacityBytes: number(1 << 20), Inodes: number(100), InodesFree: number(90)},
			})
			d.Containers = append(d.Containers, stats.ContainerDetails{ID: "c-" + uid + c,
				Image: "registry.example/app:1"})
		}
		r.Summary.Pods, r.Pods = append(r.Summary.Pods, p), append(r.Pods, d)
	}
	add("web", "u1", false, "main", evil)
	add("web", "u0", true, "main")
	return r
}

// families are the metrics of a runtime, of which some lie.
func families() []runtime.MetricFamily {
	labels := []string{"pod", "namespace", "container", "id", "image"}
	mine := []string{"other", "kube-system", "stolen", "x", evil}
	return []runtime.MetricFamily{
		{Name: "container_cpu_usage_seconds_total", Counter: true, Labels: labels, Samples: []runtime.MetricSample{{SandboxID: "s-u1", ContainerID: "c-u1main", LabelValues: mine, Value: 1}}},
		{Name: "container_memory_cache", Help: "Cache\nforged 1", Labels: labels, Samples: []runtime.MetricSample{
			{SandboxID: "s-u1", ContainerID: "c-u1main", LabelValues: mine, Value: 77, Time: time.Unix(990, 0)},
			{SandboxID: "s-u1", ContainerID: "c-u1main", LabelValues: mine, Value: 78},
			{SandboxID: "s-u1", ContainerID: "c-unknown", LabelValues: mine, Value: 79},
		}},
		{Name: "container_network_receive_packets_total", Help: "Packets", Counter: true, Labels: append(labels, "interface"), Samples: []runtime.MetricSample{{SandboxID: "s-u1", LabelValues: append(mine, "eth0"), Value: 5}}},
		{Name: "container_memory_cache", Help: "Again", Labels: labels, Samples: []runtime.MetricSample{{ContainerID: "c-u1main", LabelValues: mine, Value: 80}}},
		{Name: "container_cpu_usage_nanoseconds_total", Counter: true, Samples: []runtime.MetricSample{{SandboxID: "s-u1", ContainerID: "c-u1main", Value: 1}}},
		{Name: "container_scrape_error", Samples: []runtime.MetricSample{{SandboxID: "s-u1", Value: 1e6}}},
		{Name: "machine_cpu_cores", Samples: []runtime.MetricSample{{SandboxID: "s-u1", Value: 1e6}}},
		{Name: "kubelet_running_pods", Samples: []runtime.MetricSample{{SandboxID: "s-u1", Value: 1e6}}},
	}
}

func get(t *testing.T, h http.Handler) (code int, body string) {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	return rec.Code, rec.Body.String()
}

func TestPages(t *testing.T) {
	f := &fixed{reading: reading(), families: families()}
	for name, h := range map[string]http.Handler{"resource": statsmetrics.Resource(f),
		"cadvisor": statsmetrics.Cadvisor(f, statsmetrics.CadvisorOptions{})} {
		t.Run(name, func(t *testing.T) {
			code, body := get(t, h)
			require.Equal(t, http.StatusOK, code)
			golden := "testdata/" + name + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(body), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), body)

			parser := expfmt.NewTextParser(model.LegacyValidation)
			parsed, err := parser.TextToMetricFamilies(strings.NewReader(body))
			require.NoError(t, err)
			assert.NotContains(t, parsed, "forged")
			assert.NotContains(t, parsed, "kubelet_running_pods")
			assert.NotContains(t, parsed, "container_cpu_usage_nanoseconds_total", "cAdvisor has no such metric")
			for _, f := range parsed {
				series := map[string]bool{}
				for _, m := range f.GetMetric() {
					text := ""
					for _, l := range m.GetLabel() {
						text += l.GetName() + "=" + l.GetValue() + "\x00"
						if l.GetName() == "pod" {
							assert.Contains(t, []string{"", "web"}, l.GetValue())
						}
					}
					assert.Falsef(t, series[text], "%s has a series twice: %q", f.GetName(), text)
					series[text] = true
				}
			}
			problems, err := promlint.New(strings.NewReader(body)).Lint()
			require.NoError(t, err)
			for _, p := range problems {
				assert.Equal(t, "container_fs_inodes_total", p.Metric, "the name is cAdvisor's: %s", p.Text)
			}
		})
	}
}

func TestAPageWithoutPods(t *testing.T) {
	r := &stats.Reading{Err: errors.New("the runtime is gone")}
	_, body := get(t, statsmetrics.Resource(&fixed{reading: r}))
	assert.Contains(t, body, "\nresource_scrape_error 1\n")
	_, body = get(t, statsmetrics.Cadvisor(&fixed{reading: r}, statsmetrics.CadvisorOptions{}))
	assert.Contains(t, body, "\ncontainer_scrape_error 1\n")
	code, _ := get(t, statsmetrics.Resource(&fixed{err: context.Canceled}))
	assert.Equal(t, http.StatusServiceUnavailable, code)
}

func TestGzip(t *testing.T) {
	h := statsmetrics.Cadvisor(&fixed{reading: reading()}, statsmetrics.CadvisorOptions{})
	_, plain := get(t, h)
	for range 2 {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Accept-Encoding", "deflate, gzip;q=1.0")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		assert.Less(t, rec.Body.Len(), len(plain)/3)
		z, err := gzip.NewReader(bytes.NewReader(rec.Body.Bytes()))
		require.NoError(t, err)
		body, err := io.ReadAll(z)
		require.NoError(t, err)
		assert.Equal(t, plain, string(body))
	}
}

// disks are the volumes and logs of two pods with one claim.
func disks() []stats.DiskUsage {
	claim := statsv1alpha1.VolumeStats{Name: "data", PVCRef: &statsv1alpha1.PVCReference{Namespace: "default",
		Name: "data"}, FsStats: statsv1alpha1.FsStats{UsedBytes: number(5)}}
	return []stats.DiskUsage{
		{Pod: runtime.PodRef{Namespace: "default", Name: "a", UID: "u"}, Claims: []statsv1alpha1.VolumeStats{claim}, Logs: map[string]uint64{"main": 4096}},
		{Pod: runtime.PodRef{Namespace: "default", Name: "b", UID: "v"}, Claims: []statsv1alpha1.VolumeStats{claim}},
	}
}

func TestDiskThatChanges(t *testing.T) {
	var usage []stats.DiskUsage
	reg := prometheus.NewPedanticRegistry()
	_, err := statsmetrics.NewDisk(reg, func() []stats.DiskUsage { return usage })
	require.NoError(t, err)
	logs := func() (sizes []float64) {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				sizes = append(sizes, m.GetGauge().GetValue())
			}
		}
		return sizes
	}
	assert.Empty(t, logs())
	for i := range 3 {
		usage = []stats.DiskUsage{{Pod: runtime.PodRef{Name: "a"}, Logs: map[string]uint64{"main": uint64(i)}}}
		for range 2 {
			assert.Equal(t, []float64{float64(i)}, logs())
		}
	}
	usage = nil
	assert.Empty(t, logs())
}

func TestDisk(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	_, err := statsmetrics.NewDisk(reg, disks)
	require.NoError(t, err)
	families, err := reg.Gather()
	require.NoError(t, err)
	var out bytes.Buffer
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&out, f)
		require.NoError(t, err)
	}
	assert.Equal(t, `# HELP kubelet_container_log_filesystem_used_bytes [ALPHA] Bytes used by the container's logs on the filesystem.
# TYPE kubelet_container_log_filesystem_used_bytes gauge
kubelet_container_log_filesystem_used_bytes{container="main",namespace="default",pod="a",uid="u"} 4096
# HELP kubelet_volume_stats_used_bytes [ALPHA] Number of used bytes in the volume
# TYPE kubelet_volume_stats_used_bytes gauge
kubelet_volume_stats_used_bytes{namespace="default",persistentvolumeclaim="data"} 5
`, out.String())
	_, err = statsmetrics.NewDisk(reg, disks)
	assert.ErrorAs(t, err, &prometheus.AlreadyRegisteredError{})
}

// The ID of a series is the path of the cgroup, as with kubelet, where it is known.
func TestCgroupIDs(t *testing.T) {
	r := reading()
	r.Pods[0].CgroupPath, r.Pods[0].Containers[0].CgroupPath = "/kubepods/podu1", "/kubepods/podu1/c-u1main"
	all := stats.NodeCgroupUsage{NodeCgroup: stats.NodeCgroup{Name: "pods", Cgroup: "/kubepods"},
		Stats: statsv1alpha1.ContainerStats{CPU: cpu(4e9), Memory: memory(700)},
		Usage: stats.CgroupUsage{Cache: number(12)}}
	root := all
	root.Name, root.Cgroup = "kubelet", "/"
	r.Cgroups = []stats.NodeCgroupUsage{root, all, all}
	_, body := get(t, statsmetrics.Cadvisor(&fixed{reading: r}, statsmetrics.CadvisorOptions{}))
	for series, want := range map[string]int{
		`container_memory_working_set_bytes{container="",id="/kubepods",image="",name="",namespace="",pod=""} 700`:                                                            1,
		`container_memory_cache{container="",id="/kubepods",image="",name="",namespace="",pod=""} 12`:                                                                         1,
		`container_memory_working_set_bytes{container="",id="/",`:                                                                                                             1,
		`container_memory_working_set_bytes{container="",id="/kubepods/podu1",image="",name="",namespace="default",pod="web"} 300`:                                            1,
		`container_memory_working_set_bytes{container="main",id="/kubepods/podu1/c-u1main",image="registry.example/app:1",name="c-u1main",namespace="default",pod="web"} 100`: 1,
		`container_memory_working_set_bytes{container="",id="s-u0",`:                                                                                                          1,
	} {
		assert.Equal(t, want, strings.Count(body, series), series)
	}
}

// Kills for lack of memory are counted for the cgroup whose limit was reached. Without a counter the family is that of
// the runtime.
func TestOOMEvents(t *testing.T) {
	f := &fixed{reading: reading(), families: families()}
	_, body := get(t, statsmetrics.Cadvisor(f, statsmetrics.CadvisorOptions{OOMEvents: func(cgroup string) uint64 {
		if cgroup == "/" {
			return 3
		}
		return 0
	}}))
	assert.Regexp(t, `\ncontainer_oom_events_total\{container="",id="/",image="",name="",namespace="",pod=""\} 3`, body)
	assert.Regexp(t, `\ncontainer_oom_events_total\{container="[^"]+",id="[^"]+",.*\} 0`, body)
	_, body = get(t, statsmetrics.Cadvisor(f, statsmetrics.CadvisorOptions{}))
	assert.NotContains(t, body, "container_oom_events_total")
}
