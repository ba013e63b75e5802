package ui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// What is not known of a node is not shown.
func TestNodeOfWhichNothingIsKnown(t *testing.T) {
	v := nodeOf(&v1.Node{}, &control.Status{}, &statsv1alpha1.NodeStats{}, gc.ImagePolicy{}, nil, nil, podtest.Noon)
	assert.Equal(t, "NotReady", v.Status)
	assert.Equal(t, bad, v.Tone)
	assert.Empty(t, v.Groups)
	assert.Empty(t, v.Meters)
	assert.NotNil(t, v.Evictions, "an empty list in JSON")
}

func TestMeters(t *testing.T) {
	thresholds := []control.Threshold{{Signal: "memory.available", Value: "100Mi"},
		{Signal: "memory.available", Value: "25%", GracePeriod: "1m30s"}, {Signal: "memory.available", Value: "x"}}
	memory := func(available uint64) *statsv1alpha1.NodeStats {
		return &statsv1alpha1.NodeStats{Memory: &statsv1alpha1.MemoryStats{AvailableBytes: &available,
			WorkingSetBytes: new(1<<30 - available)}}
	}
	const limit = 100 << 20
	for available, want := range map[uint64]tone{1 << 29: good, 1 << 28: good, limit: bad} {
		assert.Equal(t, []meter{{Name: "Memory", Unit: "bytes", Used: float64(1<<30 - available), Capacity: 1 << 30, Tone: want,
			Marks: []mark{{1<<30 - limit, "evicts pods at less than 100Mi", bad},
				{3 << 28, "evicts pods at less than 25% for 1m30s", bad}}}},
			metersOf(&v1.Node{}, memory(available), thresholds, gc.ImagePolicy{}))
	}
	fs := &statsv1alpha1.FsStats{AvailableBytes: new(uint64(5)), CapacityBytes: new(uint64(100))}
	disk := &statsv1alpha1.NodeStats{Fs: fs, Runtime: &statsv1alpha1.RuntimeStats{ImageFs: fs},
		CPU:    &statsv1alpha1.CPUStats{UsageNanoCores: new(uint64(5e8))},
		Rlimit: &statsv1alpha1.RlimitStats{MaxPID: new(int64(10)), NumOfRunningProcesses: new(int64(20))}}
	node := &v1.Node{Status: v1.NodeStatus{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}}
	assert.Equal(t, []meter{
		{Name: "CPU", Unit: "cores", Used: 0.5, Capacity: 2, Tone: good, Marks: []mark{}},
		{Name: "Disk", Unit: "bytes", Used: 95, Capacity: 100, Tone: good, Marks: []mark{}},
		{Name: "Images", Unit: "bytes", Used: 95, Capacity: 100, Tone: waits,
			Marks: []mark{{85, "removes images at 85%, to 80%", waits}}},
		{Name: "Processes", Used: 10, Capacity: 10, Tone: good, Marks: []mark{}},
	}, metersOf(node, disk, nil, gc.ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80}))
}

func TestNodeGroups(t *testing.T) {
	now := podtest.Noon
	node := &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
		{Type: v1.NodeReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)},
		{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue, Message: "kubelet has disk pressure"}}}}
	status := &control.Status{Sources: []control.SourceStatus{{Name: "file", Delivered: true, Pods: 3, Rejected: 1},
		{Name: "api"}}, Certificates: []control.Certificate{{Name: "client", Expires: now.Add(-time.Hour)},
		{Name: "serving", Expires: now.Add(24 * time.Hour)}}}
	events := []runtime.Event{{Reason: "Pulled"}, {Reason: "Evicted", Message: "old"}, {Reason: "Preempting", Message: "new",
		Pod: runtime.PodRef{UID: "u", Namespace: "default", Name: "web"}}}
	held := []control.Holding{{Namespace: "default", Pod: "web", Container: "c", Resource: "cpu", Held: "2-3", Nodes: "0"}}
	v := nodeOf(node, status, &statsv1alpha1.NodeStats{}, gc.ImagePolicy{}, events, held, now)
	assert.Equal(t, "Ready,DiskPressure", v.Status)
	assert.Equal(t, bad, v.Tone)
	assert.Equal(t, []group{
		{"Conditions", []fact{{Name: "Ready", Tone: good, Answer: "True", At: &now},
			{Name: "DiskPressure", Tone: bad, Answer: "True kubelet has disk pressure"}}},
		{"Sources of pods", []fact{{Name: "file", Value: "3 pods", Tone: bad, Answer: "1 rejected"},
			{Name: "api", Value: "0 pods", Tone: bad, Answer: "has not delivered its pods"}}},
		{"Certificates", []fact{
			{Name: "client", Value: "until 2026-01-02T11:00:00Z", Tone: bad, Answer: "has ended 60m ago"},
			{Name: "serving", Value: "until 2026-01-03T12:00:00Z", Tone: waits, Answer: "ends in 24h"}}},
		{"CPUs, memory and devices that containers hold",
			[]fact{{Name: "default/web c", Value: "cpu 2-3 of memory nodes 0"}}},
	}, v.Groups)
	assert.Equal(t, []string{"new", "old"}, []string{v.Evictions[0].Message, v.Evictions[1].Message})
	assert.Equal(t, "default/web", v.Evictions[0].Pod)
}
