package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// statsSummary reads /stats/summary.
func statsSummary(agent *Agent, query string) (*statsv1alpha1.Summary, error) {
	body, err := agent.Get("/stats/summary" + query)
	if err != nil {
		return nil, err
	}
	var s statsv1alpha1.Summary
	return &s, json.Unmarshal(body, &s)
}

// podStats returns the usage of a pod.
func podStats(s *statsv1alpha1.Summary, name string) *statsv1alpha1.PodStats {
	for i := range s.Pods {
		if s.Pods[i].PodRef.Name == name {
			return &s.Pods[i]
		}
	}
	return nil
}

// metricsPage reads and parses a page of metrics, and checks what every page must be.
func metricsPage(t *testing.T, agent *Agent, path string) map[string]*dto.MetricFamily {
	t.Helper()
	body, err := agent.Get(path)
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	require.NoError(t, err, path)
	problems, err := promlint.New(strings.NewReader(string(body))).Lint()
	require.NoError(t, err)
	given := givenNames(t)
	for _, p := range problems {
		if !given[p.Metric] {
			t.Errorf("%s: %s: %s", path, p.Metric, p.Text)
		}
	}
	for name, f := range families {
		series := map[string]bool{}
		for _, m := range f.GetMetric() {
			text := fmt.Sprint(m.GetLabel())
			assert.Falsef(t, series[text], "%s: %s has a series twice: %s", path, name, text)
			series[text] = true
		}
	}
	return families
}

// givenNames returns the metrics that promlint may find fault with, because their names are given: those
// of kubelet, and two of cAdvisor.
func givenNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	golden, err := os.ReadFile("../../kubelet/testdata/kubelet-metrics.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(golden)) {
		if name := strings.TrimSpace(line); name != "" && !strings.HasPrefix(name, "#") {
			names[name] = true
		}
	}
	for _, name := range []string{"container_fs_inodes_total", "container_memory_failcnt"} {
		names[name] = true
	}
	return names
}

// value returns the value of the series that has the labels, and whether there is one.
func value(f *dto.MetricFamily, labels map[string]string) (float64, bool) {
	for _, m := range f.GetMetric() {
		matches := 0
		for _, l := range m.GetLabel() {
			if want, ok := labels[l.GetName()]; ok && want == l.GetValue() {
				matches++
			}
		}
		if matches == len(labels) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue(), true
		}
	}
	return 0, false
}

// TestStats compares the pages of the usage with what a pod really does.
func TestStats(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	agent := c.StartAgent(t, AgentOptions{})
	// It computes, keeps 20 MB in memory, writes 3 MB to its own layer, 5 MB to a volume and 1 MB to
	// its log.
	busy := Sh("busy", "dd if=/dev/zero of=/layer bs=1M count=3; dd if=/dev/zero of=/data/file bs=1M count=5; "+
		"dd if=/dev/zero bs=1M count=1 | tr '\\0' 'x' | fold -w 1000; exec dd if=/dev/zero of=/dev/null bs=20M")
	busy.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	pod := MakePod("busy", Main(busy, Sh("idle", Forever)),
		Volume("data", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	name := FullName(pod)
	agent.Put(t, pod)
	agent.Await(t, pod, within, Running)

	var s *statsv1alpha1.Summary
	Eventually(t, 2*time.Minute, "all figures are there", func() (err error) {
		if s, err = statsSummary(agent, ""); err != nil {
			return err
		}
		p := podStats(s, name)
		switch {
		case p == nil || len(p.Containers) != 2 || p.CPU == nil || p.Memory == nil || p.Network == nil ||
			p.Network.RxBytes == nil || *p.Network.RxBytes == 0 || p.ProcessStats == nil:
			return fmt.Errorf("usage of the pod: %+v", p)
		case p.Containers[0].CPU.UsageNanoCores == nil || *p.Containers[0].CPU.UsageNanoCores < 1e8:
			return fmt.Errorf("rate: %+v", p.Containers[0].CPU)
		case len(p.VolumeStats) == 0 || *p.VolumeStats[0].UsedBytes < 5<<20 || p.Containers[0].Logs == nil ||
			*p.Containers[0].Logs.UsedBytes < 1<<20:
			return fmt.Errorf("volumes %+v, logs %+v", p.VolumeStats, p.Containers[0].Logs)
		case p.Containers[0].Memory == nil || *p.Containers[0].Memory.WorkingSetBytes < 15<<20:
			// it has begun to keep something in memory
			return fmt.Errorf("memory: %+v", p.Containers[0].Memory)
		case p.Containers[0].Rootfs == nil || *p.Containers[0].Rootfs.UsedBytes < 3<<20:
			// containerd measures every 10 s
			return fmt.Errorf("layer %+v", p.Containers[0].Rootfs)
		}
		return nil
	})
	p := podStats(s, name)
	assert.Equal(t, "default", p.PodRef.Namespace)
	assert.Equal(t, "busy", p.Containers[0].Name)
	assert.Greater(t, *p.Containers[0].CPU.UsageCoreNanoSeconds, *p.Containers[1].CPU.UsageCoreNanoSeconds)
	assert.GreaterOrEqual(t, *p.Containers[0].Memory.WorkingSetBytes, uint64(15<<20))
	assert.GreaterOrEqual(t, *p.EphemeralStorage.UsedBytes, uint64(9<<20))
	n := &s.Node
	assert.Equal(t, NodeName, n.NodeName)
	for what, there := range map[string]bool{
		"CPU": n.CPU != nil, "memory": n.Memory != nil, "swap": n.Swap != nil, "network": n.Network != nil, "file system": n.Fs != nil && *n.Fs.CapacityBytes > 0,
		"images": n.Runtime != nil && n.Runtime.ImageFs != nil && *n.Runtime.ImageFs.UsedBytes > 0, "tasks": n.Rlimit != nil,
	} {
		assert.True(t, there, "%s of the node: %+v", what, n)
	}
	for resource, there := range map[string]bool{"cpu": n.CPU.PSI != nil, "memory": n.Memory.PSI != nil,
		"io": n.IO != nil && n.IO.PSI != nil} {
		_, err := os.ReadFile("/proc/pressure/" + resource)
		assert.Equal(t, err == nil, there, "pressure of %s of the node: %v", resource, err)
	}
	only, err := statsSummary(agent, "?only_cpu_and_memory=true")
	require.NoError(t, err)
	assert.Nil(t, only.Node.Fs)
	assert.Nil(t, podStats(only, name).Network)

	resource := metricsPage(t, agent, "/metrics/resource")
	of := map[string]string{"namespace": "default", "pod": name, "container": "busy"}
	used, ok := value(resource["container_cpu_usage_seconds_total"], of)
	assert.True(t, ok)
	assert.GreaterOrEqual(t, used, float64(*p.Containers[0].CPU.UsageCoreNanoSeconds)/1e9)
	for _, name := range []string{"container_memory_working_set_bytes", "container_start_time_seconds"} {
		_, ok := value(resource[name], of)
		assert.True(t, ok, name)
	}
	for _, name := range []string{"node_cpu_usage_seconds_total", "node_memory_working_set_bytes",
		"pod_cpu_usage_seconds_total", "pod_memory_working_set_bytes"} {
		assert.Contains(t, resource, name)
	}
	failed, _ := value(resource["resource_scrape_error"], nil)
	assert.Zero(t, failed)

	Eventually(t, time.Minute, "the metrics of containerd", func() error {
		body, err := agent.Get("/metrics/cadvisor")
		if err == nil && !strings.Contains(string(body), "container_network_receive_packets_total{") {
			err = fmt.Errorf("not there yet")
		}
		return err
	})
	cadvisor := metricsPage(t, agent, "/metrics/cadvisor")
	for _, name := range []string{
		"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_memory_rss",
		"container_memory_cache", "container_fs_usage_bytes",
		"container_cpu_cfs_periods_total", "container_start_time_seconds",
	} {
		_, ok := value(cadvisor[name], of)
		assert.True(t, ok, name)
	}
	for _, name := range []string{"container_network_receive_bytes_total", "container_network_receive_packets_total"} {
		_, ok := value(cadvisor[name], map[string]string{"namespace": "default", "pod": FullName(pod),
			"interface": "eth0"})
		assert.True(t, ok, name)
	}
	testPressure(t, c.Client, p, cadvisor)
	_, ok = value(cadvisor["container_cpu_usage_seconds_total"], map[string]string{"id": "/"})
	assert.True(t, ok)
	assert.Contains(t, cadvisor, "machine_memory_bytes")

	all := metricsPage(t, agent, "/metrics")
	for _, name := range []string{"kubelet_running_pods", "kubelet_running_containers",
		"kubelet_runtime_operations_total", "process_cpu_seconds_total", "go_goroutines",
		"kubelet_container_log_filesystem_used_bytes"} {
		assert.Contains(t, all, name)
	}
	metricsPage(t, agent, "/metrics/probes")
	assert.Contains(t, metricsPage(t, agent, "/metrics/slis"), "kubernetes_healthchecks_total")

	agent.Remove(t, pod)
	agent.AwaitGone(t, within, pod)
	Eventually(t, within, "the pod is not in the summary", func() error {
		s, err := statsSummary(agent, "")
		if err == nil && podStats(s, name) != nil {
			err = fmt.Errorf("it is")
		}
		return err
	})
}
