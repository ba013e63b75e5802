package fake_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{Behavior: func(c fake.Container) fake.Behavior {
			return fake.Behavior{Uses: fake.Usage{MilliCPU: 500, Memory: 10 << 20, Disk: 7, Processes: 3}}
		}})
		pods := fake.Pods(2, 2)
		require.NoError(t, rt.Seed(pods...))
		c, _ := rt.Clients()
		ctx := t.Context()
		time.Sleep(10 * time.Second)
		assert.Equal(t, 1, rt.SetUsage(fake.Target{UID: pods[0].UID, Container: "c0"},
			fake.Usage{MilliCPU: 2000, Memory: 1 << 30}))
		time.Sleep(10 * time.Second)

		first := rt.Instances(fake.Target{UID: pods[0].UID})[0]
		limits := &criv1.LinuxContainerResources{MemoryLimitInBytes: 3 << 30}
		_, err := c.UpdateContainerResources(ctx, &criv1.UpdateContainerResourcesRequest{ContainerId: first.ID.ID,
			Linux: limits})
		require.NoError(t, err)
		one, err := c.ContainerStats(ctx, &criv1.ContainerStatsRequest{ContainerId: first.ID.ID})
		require.NoError(t, err)
		assert.Equal(t, "c0", one.Stats.Attributes.Metadata.Name)
		assert.Equal(t, uint64(25*time.Second), one.Stats.Cpu.UsageCoreNanoSeconds.Value,
			"10 s by half and 10 s by two")
		assert.Equal(t, uint64(2e9), one.Stats.Cpu.UsageNanoCores.Value)
		assert.Equal(t, uint64(1<<30), one.Stats.Memory.WorkingSetBytes.Value)
		assert.Equal(t, uint64(2<<30), one.Stats.Memory.AvailableBytes.Value)

		pod, err := c.PodSandboxStats(ctx, &criv1.PodSandboxStatsRequest{PodSandboxId: first.SandboxID})
		require.NoError(t, err)
		assert.Equal(t, uint64(35*time.Second), pod.Stats.Linux.Cpu.UsageCoreNanoSeconds.Value)
		assert.Equal(t, uint64(1<<30+10<<20), pod.Stats.Linux.Memory.WorkingSetBytes.Value)
		assert.Equal(t, uint64(4), pod.Stats.Linux.Process.ProcessCount.Value)
		assert.Len(t, pod.Stats.Linux.Containers, 2)
		assert.Equal(t, uint64(7), pod.Stats.Linux.Containers[1].WritableLayer.UsedBytes.Value)

		rt.Exit(fake.Target{UID: pods[0].UID, Container: "c0"}, 0)
		time.Sleep(10 * time.Second)
		one, err = c.ContainerStats(ctx, &criv1.ContainerStatsRequest{ContainerId: first.ID.ID})
		require.NoError(t, err)
		assert.Equal(t, uint64(25*time.Second), one.Stats.Cpu.UsageCoreNanoSeconds.Value, "it uses no more")
		assert.Zero(t, one.Stats.Memory.WorkingSetBytes.Value)
		list, err := c.ListContainerStats(ctx,
			&criv1.ListContainerStatsRequest{Filter: &criv1.ContainerStatsFilter{PodSandboxId: first.SandboxID}})
		require.NoError(t, err)
		require.Len(t, list.Stats, 1)
		assert.Equal(t, "c1", list.Stats[0].Attributes.Metadata.Name)

		rt.KillSandbox(fake.Target{UID: pods[0].UID})
		sandboxes, err := c.ListPodSandboxStats(ctx, &criv1.ListPodSandboxStatsRequest{})
		require.NoError(t, err)
		require.Len(t, sandboxes.Stats, 1)
		assert.Equal(t, "pod-1", sandboxes.Stats[0].Attributes.Metadata.Name)

		_, err = c.ContainerStats(ctx, &criv1.ContainerStatsRequest{ContainerId: "nobody"})
		require.ErrorContains(t, err, "NotFound")
		_, err = c.PodSandboxStats(ctx, &criv1.PodSandboxStatsRequest{PodSandboxId: "nobody"})
		require.ErrorContains(t, err, "NotFound")
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		require.NoError(t, rt.Seed(fake.Pods(2, 1)...))
		rt.SetUsage(fake.Target{Pod: "pod-0"}, fake.Usage{MilliCPU: 1000, Memory: 5})
		rt.KillSandbox(fake.Target{Pod: "pod-1"})
		time.Sleep(90 * time.Second)
		c, _ := rt.Clients()
		descriptors, err := c.ListMetricDescriptors(t.Context(), &criv1.ListMetricDescriptorsRequest{})
		require.NoError(t, err)
		list, err := c.ListPodSandboxMetrics(t.Context(), &criv1.ListPodSandboxMetricsRequest{})
		require.NoError(t, err)
		require.Len(t, list.PodMetrics, 1)
		values := list.PodMetrics[0].ContainerMetrics[0].Metrics
		got := map[string]uint64{}
		for i, d := range descriptors.Descriptors {
			assert.Equal(t, d.Name, values[i].Name)
			assert.Len(t, values[i].LabelValues, len(d.LabelKeys))
			got[d.Name] = values[i].Value.Value
		}
		assert.Equal(t, map[string]uint64{
			"container_cpu_usage_seconds_total": 90, "container_memory_working_set_bytes": 5, "container_processes": 1,
		}, got)
		assert.Contains(t, values[0].LabelValues, "pod-0")
	})
}
