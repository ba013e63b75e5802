package client

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func usageOfTest(cores, memory uint64) (*statsv1alpha1.CPUStats, *statsv1alpha1.MemoryStats) {
	free := uint64(3 << 30)
	return &statsv1alpha1.CPUStats{UsageNanoCores: &cores}, &statsv1alpha1.MemoryStats{WorkingSetBytes: &memory, AvailableBytes: &free}
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
	s.Pods = []statsv1alpha1.PodStats{web, {PodRef: statsv1alpha1.PodReference{Namespace: "kube-system", Name: "starting"}}}

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
	assert.Equal(t, "NAME     CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)\nedge-7   1500m        75%      1024Mi          25%\n", out.String())
	assert.True(t, hasRates(&s, true))
	assert.True(t, hasRates(&s, false))
	s.Pods[0].CPU.UsageNanoCores = nil
	assert.False(t, hasRates(&s, false))
}
