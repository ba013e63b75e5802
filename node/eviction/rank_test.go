package eviction_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/eviction"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// pod makes a pod with a request of memory and of ephemeral storage.
func pod(name string, priority int32, memory, storage string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: v1.PodSpec{Priority: &priority,
			Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceMemory: resource.MustParse(memory), v1.ResourceEphemeralStorage: resource.MustParse(storage),
			}}}}},
	}
}

func bytes(n int64) eviction.DiskUsage { return eviction.DiskUsage{Bytes: new(n), Inodes: new(n / 10)} }

func TestRank(t *testing.T) {
	const mi = 1 << 20
	static := pod("static", 0, "0", "0")
	static.Annotations = map[string]string{podspec.AnnotationConfigSource: "file"}
	memory := []eviction.Pod{
		{Pod: pod("below-low", 0, "100Mi", "0"), Usage: eviction.Usage{Memory: new(int64(50 * mi))}},
		{Pod: pod("over-high", 10, "10Mi", "0"), Usage: eviction.Usage{Memory: new(int64(500 * mi))}},
		{Pod: pod("unknown", 0, "0", "0")},
		{Pod: pod("over-little", 0, "10Mi", "0"), Usage: eviction.Usage{Memory: new(int64(11 * mi))}},
		{Pod: pod("over-much", 0, "10Mi", "0"), Usage: eviction.Usage{Memory: new(int64(20 * mi))}},
		{Pod: pod("below-high", 10, "1000Mi", "0"), Usage: eviction.Usage{Memory: new(int64(600 * mi))}},
		{Pod: pod("nothing", -10, "0", "0"), Usage: eviction.Usage{Memory: new(int64(0))}},
		{Pod: pod("ending", 0, "0", "0"), Ending: true, Usage: eviction.Usage{Memory: new(int64(900 * mi))}},
		{Pod: pod("critical", 2_000_000_000, "0", "0"), Usage: eviction.Usage{Memory: new(int64(900 * mi))}},
		{Pod: static, Usage: eviction.Usage{Memory: new(int64(900 * mi))}},
	}
	disks := []eviction.Pod{
		{Pod: pod("logs", 0, "0", "0"), Usage: eviction.Usage{Logs: bytes(30)}},
		{Pod: pod("layer", 0, "0", "0"), Usage: eviction.Usage{Writable: bytes(50)}},
		{Pod: pod("volume", 0, "0", "0"), Usage: eviction.Usage{Volumes: bytes(40)}},
		{Pod: pod("requests", 0, "0", "100"), Usage: eviction.Usage{Logs: bytes(10), Writable: bytes(40), Volumes: bytes(40)}},
	}
	processes := []eviction.Pod{
		{Pod: pod("many", 5, "0", "0"), Usage: eviction.Usage{Processes: new(int64(1000))}},
		{Pod: pod("few", 0, "0", "0"), Usage: eviction.Usage{Processes: new(int64(2))}},
		{Pod: pod("some", 0, "0", "0"), Usage: eviction.Usage{Processes: new(int64(20))}},
	}
	for _, tc := range []struct {
		name   string
		signal eviction.Signal
		layout eviction.Layout
		static bool
		pods   []eviction.Pod
		want   []string
	}{
		{"memory", eviction.MemoryAvailable, 0, false, memory, []string{"over-much", "over-little", "over-high", "below-low", "below-high", "unknown"}},
		{"allocatable memory, static pods too", eviction.AllocatableMemoryAvailable, 0, true, memory, []string{"static", "over-much", "over-little", "over-high", "below-low", "below-high", "unknown"}},
		{"one disk", eviction.NodeFsAvailable, eviction.OneDisk, false, disks, []string{"layer", "volume", "logs", "requests"}},
		{"nodefs beside imagefs", eviction.NodeFsAvailable, eviction.ImageDisk, false, disks, []string{"volume", "logs", "requests"}},
		{"imagefs", eviction.ImageFsAvailable, eviction.ImageDisk, false, disks, []string{"layer", "requests"}},
		{"nodefs with writable layers", eviction.NodeFsAvailable, eviction.SplitDisk, false, disks, []string{"layer", "volume", "logs", "requests"}},
		{"imagefs of images only", eviction.ImageFsAvailable, eviction.SplitDisk, false, disks, []string{"layer", "logs", "requests", "volume"}},
		{"inodes have no request", eviction.NodeFsInodesFree, eviction.OneDisk, false, disks, []string{"requests", "layer", "volume", "logs"}},
		{"processes", eviction.PIDAvailable, 0, false, processes, []string{"some", "few", "many"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, p := range eviction.Rank(tc.signal, eviction.Rules{Layout: tc.layout, EvictStatic: tc.static},
				tc.pods) {
				if tc.signal == eviction.ImageFsAvailable && tc.layout == eviction.ImageDisk &&
					p.Usage.Writable.Bytes == nil {
					continue // unknown
				}
				if tc.signal == eviction.NodeFsAvailable && tc.layout == eviction.ImageDisk &&
					p.Usage.Logs.Bytes == nil && p.Usage.Volumes.Bytes == nil {
					continue
				}
				got = append(got, p.Pod.Name)
			}
			assert.Equal(t, tc.want, got)
		})
	}
}
