package client

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/podresources"
)

func usageOfTest(cores, memory uint64) (*statsv1alpha1.CPUStats, *statsv1alpha1.MemoryStats) {
	free := uint64(3 << 30)
	return &statsv1alpha1.CPUStats{UsageNanoCores: &cores}, &statsv1alpha1.MemoryStats{WorkingSetBytes: &memory,
		AvailableBytes: &free}
}

func TestTables(t *testing.T) {
	var s statsv1alpha1.Summary
	s.Node.NodeName = "edge-7"
	s.Node.CPU, s.Node.Memory = usageOfTest(1_500_000_000, 1<<30)
	web := statsv1alpha1.PodStats{PodRef: statsv1alpha1.PodReference{Namespace: "default", Name: "web"}}
	web.CPU, web.Memory = usageOfTest(12_300_000, 45<<20)
	main := statsv1alpha1.ContainerStats{Name: "main\x1b[2J"}
	main.CPU, main.Memory = usageOfTest(0, 44<<20)
	web.Containers = []statsv1alpha1.ContainerStats{main, {Name: "new"}}
	s.Pods = []statsv1alpha1.PodStats{web,
		{PodRef: statsv1alpha1.PodReference{Namespace: "kube-system", Name: "starting"}}}

	table := func(form output, containers bool, pods ...statsv1alpha1.PodStats) string {
		var out strings.Builder
		c := &call{Env: Env{Out: &out}, containers: containers, output: form}
		require.NoError(t, c.podUsage(items[statsv1alpha1.PodStats]{Items: pods}))
		return out.String()
	}
	assert.Equal(t, "NAMESPACE     NAME       CPU(cores)   MEMORY(bytes)\n"+
		"default       web        13m          45Mi\n"+
		"kube-system   starting   <unknown>    <unknown>\n", table(asTable, false, s.Pods...))
	assert.Equal(t, "NAMESPACE   POD   NAME          CPU(cores)   MEMORY(bytes)\n"+
		"default     web   main\\x1b[2J   0m           44Mi\n"+
		"default     web   new           <unknown>    <unknown>\n", table(asTable, true, s.Pods[0]))
	assert.Equal(t, "default/web\nkube-system/starting\n", table(asName, false, s.Pods...))
	var out strings.Builder
	require.NoError(t, (&call{Env: Env{Out: &out}}).nodeUsage(&s.Node, 2))
	assert.Equal(t, "NAME     CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)\nedge-7   1500m        75%      "+
		"1024Mi          25%\n", out.String())
	assert.True(t, hasRates(&s, true))
	assert.True(t, hasRates(&s, false))
	s.Pods[0].CPU.UsageNanoCores = nil
	assert.False(t, hasRates(&s, false))
}

func TestDevices(t *testing.T) {
	held := items[control.Holding]{Items: []control.Holding{
		{Namespace: "default", Pod: "web", Container: "main", Resource: "cpu", Held: "2-3"},
		{Namespace: "default", Pod: "web", Container: "main", Resource: "example.com/gpu", Held: "a,b\x1b[2J", Nodes: "0-1"},
	}}
	var out strings.Builder
	require.NoError(t, (&call{Env: Env{Out: &out}}).holdings(held))
	assert.Equal(t, "NAMESPACE   POD   CONTAINER   RESOURCE          HELD         NUMA\n"+
		"default     web   main        cpu               2-3          -\n"+
		"default     web   main        example.com/gpu   a,b\\x1b[2J   0-1\n", out.String())

	pod := podtest.Pod("")
	pod.Namespace, pod.Name, pod.Spec.Containers = "default", "web", []v1.Container{{Name: "main"}, {Name: "other"}}
	text := strings.Join(strings.Fields(describe(&known{pod: pod, held: held.Items}, podtest.Noon, 0)), " ")
	assert.Contains(t, text, "Holds: cpu 2-3, example.com/gpu a,b\\x1b[2J (NUMA 0-1)")
	assert.Equal(t, 1, strings.Count(text, "Holds:"))
}

func TestHoldings(t *testing.T) {
	pods := []podresources.Pod{{Namespace: "default", Name: "web", Containers: []podresources.Container{{Name: "idle"},
		{Name: "main", Resources: podresources.Resources{
			CPUs: cpuset.New(3, 2), Memory: []podresources.Memory{{Resource: "memory", Size: 1 << 30,
				Nodes: numa.Of(1)}},
			Devices: []podresources.Devices{{Resource: "example.com/gpu", IDs: []string{"a", "b"},
				Nodes: numa.Of(0, 1)}},
			Claims: []podresources.Claim{{Name: "claim",
				Devices: []podresources.ClaimDevice{{Driver: "d", Pool: "p", Device: "0"}}}},
		}}}}}
	var rows []string
	for _, h := range control.Holdings(pods) {
		rows = append(rows, strings.Join([]string{h.Namespace, h.Pod, h.Container, h.Resource, h.Held, h.Nodes}, " "))
	}
	assert.Equal(t, []string{"default web main cpu 2-3 ", "default web main memory 1Gi 1",
		"default web main example.com/gpu a,b 0-1", "default web main claim claim d/p/0 "}, rows)
}
