package eviction

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

// proc has files of a real machine of 8 GiB.
var proc = map[string]string{
	"meminfo":                "MemTotal:        8148532 kB\nMemFree:          312044 kB\nMemAvailable:    5201848 kB\nBuffers:          141240 kB\nInactive(anon):     2048 kB\nInactive(file):  2909012 kB\n",
	"loadavg":                "0.20 0.18 0.12 1/812 11206\n",
	"sys/kernel/pid_max":     "4194304\n",
	"sys/kernel/threads-max": "63395\n",
}

func all() []Threshold {
	var out []Threshold
	for _, s := range []Signal{MemoryAvailable, AllocatableMemoryAvailable, NodeFsAvailable, NodeFsInodesFree,
		ImageFsAvailable, PIDAvailable} {
		out = append(out, Threshold{Signal: s})
	}
	return out
}

func TestMachine(t *testing.T) {
	const stat1 = "cache 1\ninactive_file 1\ntotal_inactive_file 1000000\n"
	const stat2 = "anon 1\nfile 2\ninactive_file 1000000\n"
	for _, tc := range []struct {
		name    string
		proc    map[string]string
		cgroups map[string]string
		want    map[Signal][2]int64
		missing []Signal
		err     string
	}{
		{
			name: "version 1", proc: proc,
			cgroups: map[string]string{"memory/kubepods/memory.limit_in_bytes": "4000000\n",
				"memory/kubepods/memory.usage_in_bytes": "3000000\n", "memory/kubepods/memory.stat": stat1},
			want: map[Signal][2]int64{
				MemoryAvailable: {(312044 + 2909012) << 10, 8148532 << 10}, AllocatableMemoryAvailable: {2000000,
					4000000}, PIDAvailable: {63395 - 812, 63395},
			},
			missing: []Signal{ImageFsAvailable},
		},
		{
			name: "version 2", proc: proc,
			cgroups: map[string]string{"cgroup.controllers": "memory pids", "kubepods/memory.max": "4000000\n",
				"kubepods/memory.current": "5500000\n", "kubepods/memory.stat": stat2},
			want: map[Signal][2]int64{AllocatableMemoryAvailable: {0, 4000000}},
		},
		{
			name: "no limits", proc: proc,
			cgroups: map[string]string{"cgroup.controllers": "memory", "kubepods/memory.max": "max\n",
				"kubepods/memory.current": "5500000\n", "kubepods/memory.stat": stat2},
			missing: []Signal{AllocatableMemoryAvailable},
		},
		{
			name: "no limits, version 1", proc: proc,
			cgroups: map[string]string{"memory/kubepods/memory.limit_in_bytes": "9223372036854771712\n",
				"memory/kubepods/memory.usage_in_bytes": "3000000\n", "memory/kubepods/memory.stat": stat1},
			missing: []Signal{AllocatableMemoryAvailable},
		},
		{name: "nothing", missing: []Signal{MemoryAvailable, PIDAvailable, AllocatableMemoryAvailable}, err: "meminfo"},
		{name: "no numbers", proc: map[string]string{"meminfo": "MemTotal: x kB\nMemFree:\n", "loadavg": "1 2", "sys/kernel/pid_max": "99"}, missing: []Signal{MemoryAvailable, PIDAvailable}, err: "loadavg"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := NewMachine(MachineOptions{RootDir: t.TempDir(), PodsCgroup: func() string { return "/kubepods" },
				proc: tree(t, tc.proc), cgroup: tree(t, tc.cgroups)})
			require.NoError(t, err)
			got, err := m.Read(t.Context(), all())
			if tc.err != "" {
				assert.ErrorContains(t, err, tc.err)
			} else {
				assert.NoError(t, err)
			}
			for s, want := range tc.want {
				assert.Equal(t, want, [2]int64{got[s].Available, got[s].Capacity}, s)
			}
			for _, s := range tc.missing {
				assert.NotContains(t, got, s)
			}
			assert.Positive(t, got[NodeFsAvailable].Capacity)
		})
	}
	_, err := NewMachine(MachineOptions{RootDir: "relative"})
	assert.ErrorContains(t, err, "absolute")
}

func TestImageFs(t *testing.T) {
	here := t.TempDir()
	info, calls := runtime.ImageFsInfo{Images: runtime.FsUsage{Mountpoint: here}}, 0
	failure := error(nil)
	m, err := NewMachine(MachineOptions{RootDir: here, Images: func(context.Context) (runtime.ImageFsInfo,
		error) {
		calls++
		return info, failure
	}, proc: tree(t, proc)})
	require.NoError(t, err)
	for range 3 {
		got, err := m.Read(t.Context(), []Threshold{{Signal: ImageFsAvailable}})
		require.NoError(t, err)
		assert.Positive(t, got[ImageFsAvailable].Capacity)
	}
	layout, err := m.Layout(t.Context())
	assert.NoError(t, err)
	assert.Equal(t, OneDisk, layout)
	assert.Equal(t, 1, calls, "only the place is asked for")

	m.imagesAt, failure = time.Time{}, errors.New("no space")
	got, err := m.Read(t.Context(), []Threshold{{Signal: ImageFsAvailable}})
	require.NoError(t, err)
	assert.Positive(t, got[ImageFsAvailable].Capacity, "the place is known")

	failure = nil
	info.Images = runtime.FsUsage{Mountpoint: "/of/another/machine", CapacityBytes: 100, AvailableBytes: 7}
	m.imagesAt = time.Time{}
	got, err = m.Read(t.Context(), []Threshold{{Signal: ImageFsAvailable}, {Signal: ImageFsInodesFree}})
	require.NoError(t, err)
	assert.EqualValues(t, 7, got[ImageFsAvailable].Available)
	assert.NotContains(t, got, ImageFsInodesFree)
	layout, err = m.Layout(t.Context())
	assert.NoError(t, err)
	assert.Equal(t, ImageDisk, layout)

	m.imagesAt, failure = time.Time{}, errors.New("no answer")
	_, err = m.Read(t.Context(), []Threshold{{Signal: ImageFsAvailable}})
	assert.ErrorContains(t, err, "no answer")
	m.imagesAt, failure = time.Time{}, errors.ErrUnsupported
	got, err = m.Read(t.Context(), []Threshold{{Signal: ImageFsAvailable}})
	assert.NoError(t, err)
	assert.Empty(t, got)
}

func TestUsages(t *testing.T) {
	const mi = 1 << 20
	stat := func(inactive string) string { return "inactive_file " + inactive + "\n" }
	cgroups := tree(t, map[string]string{
		"cgroup.controllers": "", "pods/a/memory.current": "300", "pods/a/memory.stat": stat("100"), "pods/a/memory.max": "max", "pods/a/pids.current": "7",
		"pods/a/cri-containerd-c1.scope/memory.current": "150", "pods/a/cri-containerd-c1.scope/memory.stat": stat("0"),
		"pods/a/other/memory.current": "1", "pods/a/other/memory.stat": stat("0"),
	})
	logs := tree(t, map[string]string{"default_a_a/c/0.log": string(make([]byte, mi))})
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "a"},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "c"}},
			Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
				{Name: "ram", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}}},
		},
	}
	status := &runtime.PodStatus{
		Sandboxes: []runtime.SandboxStatus{{Sandbox: runtime.Sandbox{ID: "s1"}}},
		Containers: []runtime.ContainerStatus{{Container: runtime.Container{ID: runtime.ContainerID{ID: "c1"},
			Name: "c", State: runtime.ContainerRunning}}},
	}
	rt := &reporting{Runtime: fake.New(fake.Options{}), usage: runtime.Usage{
		Sandboxes: []runtime.SandboxUsage{{ID: "s1",
			Memory: &statsv1alpha1.MemoryStats{WorkingSetBytes: new(uint64(900))}, Processes: new(uint64(3))}},
		Containers: []runtime.ContainerUsage{{
			ID: "c1", Memory: &statsv1alpha1.MemoryStats{WorkingSetBytes: new(uint64(800))},
			WritableLayer: &statsv1alpha1.FsStats{UsedBytes: new(uint64(5 * mi)), InodesUsed: new(uint64(9))},
		}},
	}}
	u, err := NewUsages(rt, UsagesOptions{
		PodCgroup:  func(*v1.Pod) string { return "/pods/a" },
		PodLogsDir: logs, cgroup: cgroups,
	})
	require.NoError(t, err)

	node := usedNode{status: status, volumes: []statsv1alpha1.VolumeStats{
		{Name: "data", FsStats: statsv1alpha1.FsStats{UsedBytes: new(uint64(10 * mi)), InodesUsed: new(uint64(20))}},
		{Name: "ram", FsStats: statsv1alpha1.FsStats{UsedBytes: new(uint64(1000 * mi))}},
	}}
	pods := []Pod{{Pod: p}}
	require.NoError(t, u.Measure(t.Context(), node, MemoryAvailable, pods))
	assert.EqualValues(t, 200, *pods[0].Usage.Memory)
	require.Len(t, pods[0].Usage.Containers, 1)
	assert.EqualValues(t, 150, *pods[0].Usage.Containers[0].Memory)
	assert.Zero(t, rt.calls, "cgroups are enough")

	pods = []Pod{{Pod: p}}
	require.NoError(t, u.Measure(t.Context(), node, PIDAvailable, pods))
	assert.EqualValues(t, 7, *pods[0].Usage.Processes)

	pods = []Pod{{Pod: p}}
	require.NoError(t, u.Measure(t.Context(), node, NodeFsAvailable, pods))
	usage := pods[0].Usage
	assert.EqualValues(t, 5*mi, *usage.Writable.Bytes)
	assert.EqualValues(t, 10*mi, *usage.Volumes.Bytes)
	assert.EqualValues(t, 20, *usage.Volumes.Inodes)
	assert.InDelta(t, mi, *usage.Logs.Bytes, 64<<10)
	assert.InDelta(t, 6*mi, *usage.Containers[0].Disk, 64<<10)

	u.opts.PodCgroup = nil // a runtime without cgroups that this process sees
	pods = []Pod{{Pod: p}}
	require.NoError(t, u.Measure(t.Context(), node, MemoryAvailable, pods))
	assert.EqualValues(t, 900, *pods[0].Usage.Memory)
	assert.EqualValues(t, 800, *pods[0].Usage.Containers[0].Memory)
	assert.EqualValues(t, 3, *pods[0].Usage.Processes)

	rt.err = errors.New("no answer")
	pods = []Pod{{Pod: p}}
	assert.ErrorContains(t, u.Measure(t.Context(), node, MemoryAvailable, pods), "no answer")
	assert.Nil(t, pods[0].Usage.Memory)
	_, err = NewUsages(nil, UsagesOptions{})
	assert.Error(t, err)
}

// usedNode is a node with a pod that uses something.
type usedNode struct {
	lifecycle.NopNode
	status  *runtime.PodStatus
	volumes []statsv1alpha1.VolumeStats
}

func (n usedNode) RuntimeStatus(types.UID) (*runtime.PodStatus, bool) { return n.status, true }

func (n usedNode) VolumeStats(context.Context, *v1.Pod) ([]statsv1alpha1.VolumeStats, error) {
	return n.volumes, nil
}

// reporting is a runtime that reports usage.
type reporting struct {
	runtime.Runtime
	usage runtime.Usage
	err   error
	calls int
}

func (r *reporting) ListUsage(context.Context) (runtime.Usage, error) {
	r.calls++
	return r.usage, r.err
}
