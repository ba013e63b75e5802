package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// callsOfStats are the calls of CRI by which a runtime reports usage.
var callsOfStats = []string{
	"ContainerStats", "ListContainerStats", "StreamContainerStats", "PodSandboxStats", "ListPodSandboxStats",
	"StreamPodSandboxStats",
	"ListMetricDescriptors", "ListPodSandboxMetrics", "StreamPodSandboxMetrics",
}

// TestStatsFromCgroups has a runtime without stats. The usage of its pod is read from cgroups and file
// systems. It is compared with the usage that the runtime reports for the same pod before and after.
func TestStatsFromCgroups(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	proxy := c.NewCRIProxy(t)
	agent := c.StartAgent(t, AgentOptions{Endpoint: proxy.Endpoint})
	// One computes and has a limit, the other one keeps 16 MiB in memory. Both have written to their logs.
	const kept = 16 << 20
	idle := Sh("idle", "echo kept; dd if=/dev/zero of=/memory/file bs=1M count=16; touch /memory/done; "+Forever)
	idle.VolumeMounts = []v1.VolumeMount{{Name: "memory", MountPath: "/memory"}}
	computes := Sh("busy", "echo computes; exec dd if=/dev/zero of=/dev/null bs=1M")
	computes.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	pod := MakePod("measured", Main(computes, idle),
		Volume("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}))
	name := FullName(pod)
	agent.Put(t, pod)
	was := agent.Await(t, pod, within, Running)
	Eventually(t, within, "the file is written", func() error {
		_, err := c.TryExec(t, name, "idle", "test", "-e", "/memory/done")
		return err
	})

	// read returns the usage when the figures that both have are there, and what else is wanted.
	read := func(what string, more func(*statsv1alpha1.PodStats) error) (*statsv1alpha1.Summary,
		*statsv1alpha1.PodStats) {
		t.Helper()
		var s *statsv1alpha1.Summary
		var p *statsv1alpha1.PodStats
		Eventually(t, eventually, what, func() (err error) {
			if s, err = statsSummary(agent, ""); err != nil {
				return err
			}
			if p = podStats(s, name); p == nil || len(p.Containers) != 2 || p.Network == nil || p.ProcessStats == nil ||
				len(p.VolumeStats) == 0 || p.EphemeralStorage == nil {
				return fmt.Errorf("usage of the pod: %+v", p)
			}
			for _, u := range usageOf(p) {
				if u.cpu == nil || u.cpu.UsageCoreNanoSeconds == nil || u.cpu.UsageNanoCores == nil ||
					u.memory == nil || u.memory.WorkingSetBytes == nil || u.memory.RSSBytes == nil ||
					u.memory.PageFaults == nil {
					return fmt.Errorf("usage of %s: %+v, %+v", u.what, u.cpu, u.memory)
				}
			}
			if more != nil {
				return more(p)
			}
			return nil
		})
		return s, p
	}
	restart := func(refused ...string) {
		t.Helper()
		agent.Stop(t)
		proxy.Refuse(refused...)
		agent.Start(t)
		agent.WaitHealthy(t)
		adopted(t, was, agent.Await(t, pod, within, Running))
	}
	atLeast := func(before *statsv1alpha1.PodStats) func(*statsv1alpha1.PodStats) error {
		return func(p *statsv1alpha1.PodStats) error {
			then := usageOf(before)
			for i, u := range usageOf(p) {
				if *u.cpu.UsageCoreNanoSeconds < *then[i].cpu.UsageCoreNanoSeconds {
					return fmt.Errorf("CPU time of %s: %d before, %d now", u.what, *then[i].cpu.UsageCoreNanoSeconds,
						*u.cpu.UsageCoreNanoSeconds)
				}
			}
			return nil
		}
	}

	nodeBefore, before := read("usage by the runtime", func(p *statsv1alpha1.PodStats) error {
		if p.Containers[0].Rootfs == nil {
			return fmt.Errorf("no layer: %+v", p.Containers[0])
		}
		return nil
	})
	restart(callsOfStats...)
	node, own := read("usage by cgroups", nil)
	require.NoError(t, atLeast(before)(own))
	page, cadvisor := metricsPage(t, agent, "/metrics/resource"), metricsPage(t, agent, "/metrics/cadvisor")
	assert.NotZero(t, proxy.Calls("ListPodSandboxStats")+proxy.Calls("StreamPodSandboxStats"))
	restart()
	_, after := read("usage by the runtime again", atLeast(own)) // a runtime may report what it has read a moment ago

	near := func(a, b *uint64, what string) {
		t.Helper()
		assert.InDelta(t, float64(*a), float64(*b), 4<<20, what)
	}
	usual, later := usageOf(before), usageOf(after)
	for i, u := range usageOf(own) {
		near(usual[i].memory.WorkingSetBytes, u.memory.WorkingSetBytes, "working set of "+u.what)
		near(usual[i].memory.RSSBytes, u.memory.RSSBytes, "RSS of "+u.what)
		near(usual[i].memory.UsageBytes, u.memory.UsageBytes, "memory of "+u.what)
		assert.LessOrEqual(t, *usual[i].memory.PageFaults, *u.memory.PageFaults, u.what)
		assert.LessOrEqual(t, *u.memory.PageFaults, *later[i].memory.PageFaults, u.what)
	}
	near(before.Containers[0].Memory.AvailableBytes, own.Containers[0].Memory.AvailableBytes, "memory up to the limit")
	assert.Nil(t, own.Containers[1].Memory.AvailableBytes, "it has no limit")
	busy, quiet := own.Containers[0], own.Containers[1]
	assert.Positive(t, *busy.CPU.UsageNanoCores)
	assert.Greater(t, *busy.CPU.UsageCoreNanoSeconds, *quiet.CPU.UsageCoreNanoSeconds)
	assert.GreaterOrEqual(t, *own.CPU.UsageCoreNanoSeconds, *busy.CPU.UsageCoreNanoSeconds)
	assert.GreaterOrEqual(t, *quiet.Memory.WorkingSetBytes, uint64(kept))
	assert.GreaterOrEqual(t, *own.Memory.WorkingSetBytes, uint64(kept))
	for _, of := range []struct{ before, own, after *uint64 }{
		{before.Network.RxBytes, own.Network.RxBytes, after.Network.RxBytes}, {before.Network.TxBytes, own.Network.TxBytes, after.Network.TxBytes},
	} {
		assert.LessOrEqual(t, *of.before, *of.own)
		assert.LessOrEqual(t, *of.own, *of.after)
	}
	assert.Equal(t, before.Network.Name, own.Network.Name)
	assert.Equal(t, *before.ProcessStats.ProcessCount+1, *own.ProcessStats.ProcessCount,
		"the cgroup of the pod has the process of its sandbox, too")

	// File systems are read by statfs, and files are added up.
	assert.Nil(t, busy.Rootfs, "only the runtime knows layers")
	assert.GreaterOrEqual(t, *own.VolumeStats[0].UsedBytes, uint64(kept))
	assert.Equal(t, *before.VolumeStats[0].CapacityBytes, *own.VolumeStats[0].CapacityBytes)
	assert.Positive(t, *busy.Logs.UsedBytes)
	assert.Equal(t, *nodeBefore.Node.Fs.CapacityBytes, *node.Node.Fs.CapacityBytes)
	assert.Equal(t, *nodeBefore.Node.Fs.CapacityBytes, *busy.Logs.CapacityBytes,
		"logs are on the file system of the agent")

	failed, ok := value(page["resource_scrape_error"], nil)
	assert.True(t, ok)
	assert.Zero(t, failed)
	for _, u := range usageOf(own) {
		labels := map[string]string{"namespace": "default", "pod": name}
		prefix := "pod"
		if u.container != "" {
			labels["container"], prefix = u.container, "container"
		}
		cpu, ok := value(page[prefix+"_cpu_usage_seconds_total"], labels)
		assert.True(t, ok, u.what)
		assert.GreaterOrEqual(t, cpu, float64(*u.cpu.UsageCoreNanoSeconds)/1e9, u.what)
		memory, ok := value(page[prefix+"_memory_working_set_bytes"], labels)
		assert.True(t, ok, u.what)
		assert.InDelta(t, float64(*u.memory.WorkingSetBytes), memory, 4<<20, u.what)
	}
	of := map[string]string{"namespace": "default", "pod": name, "container": "idle"}
	cache, _ := value(cadvisor["container_memory_cache"], of)
	assert.GreaterOrEqual(t, cache, float64(kept))
	of["container"] = "busy"
	system, _ := value(cadvisor["container_cpu_system_seconds_total"], of)
	assert.Positive(t, system)
	for _, name := range []string{"container_cpu_user_seconds_total", "container_cpu_cfs_periods_total",
		"container_memory_rss", "container_memory_mapped_file"} {
		_, ok := value(cadvisor[name], of)
		assert.True(t, ok, name)
	}
	testPressure(t, c.Client, own, cadvisor)
}

// usage is what a pod or a container uses.
type usage struct {
	what, container string
	cpu             *statsv1alpha1.CPUStats
	memory          *statsv1alpha1.MemoryStats
}

func usageOf(p *statsv1alpha1.PodStats) []usage {
	all := []usage{{"the pod", "", p.CPU, p.Memory}}
	for i := range p.Containers {
		c := &p.Containers[i]
		all = append(all, usage{"container " + c.Name, c.Name, c.CPU, c.Memory})
	}
	return all
}

// testPressure shows that the pressure of the containers of a pod is there exactly if the kernel has it in
// their cgroups of version 2. With version 1, neither containerd nor kubelet reads it, also if there is
// a hierarchy of version 2 beside.
func testPressure(t *testing.T, c *Client, p *statsv1alpha1.PodStats, cadvisor map[string]*dto.MetricFamily) {
	t.Helper()
	for i := range p.Containers {
		container := &p.Containers[i]
		has := hasPressure(t, c.PID(t, c.Newest(t, p.PodRef.Name, container.Name).Id))
		t.Logf("the kernel has the pressure of container %s: %v", container.Name, has)
		there := map[string]bool{
			"CPU": container.CPU.PSI != nil, "memory": container.Memory.PSI != nil, "I/O": container.IO != nil && container.IO.PSI != nil,
		}
		labels := map[string]string{"namespace": p.PodRef.Namespace, "pod": p.PodRef.Name, "container": container.Name}
		for _, of := range []string{"cpu", "memory", "io"} {
			for _, kind := range []string{"waiting", "stalled"} {
				metric := fmt.Sprintf("container_pressure_%s_%s_seconds_total", of, kind)
				_, there[metric] = value(cadvisor[metric], labels)
			}
		}
		for what, is := range there {
			assert.Equal(t, has, is, "%s of %s", what, container.Name)
		}
	}
}

// hasPressure reports whether the kernel has the pressure of the cgroup of a process, in a mounted
// hierarchy that has all controllers.
func hasPressure(t *testing.T, pid int) bool {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			_, err := os.ReadFile("/sys/fs/cgroup" + path + "/cpu.pressure") // it cannot be read if psi=0
			return err == nil
		}
	}
	return false
}
