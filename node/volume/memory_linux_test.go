package volume_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// mountOf returns the type of the file system at a mount point, and its options.
func mountOf(t *testing.T, dir string) (typ string, options []string) {
	t.Helper()
	info, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(info)) {
		f := strings.Fields(line)
		if f[4] == dir {
			return f[len(f)-3], append(strings.Split(f[5], ","), strings.Split(f[len(f)-1], ",")...)
		}
	}
	require.Fail(t, "not mounted", dir)
	return "", nil
}

// A volume in memory is not swapped, runs nothing as root, and is not larger than its limit,
// the pod's and the node's.
func TestOptionsOfMemory(t *testing.T) {
	needsMount(t)
	cpu := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	memory := v1.ResourceList{v1.ResourceMemory: resource.MustParse("2Mi")}
	for name, tc := range map[string]struct {
		volume, container, node, want string
		more                          testpod.Option
	}{
		"volume":    {volume: "4Mi", container: "8Mi", node: "16Mi", want: "size=4096k"},
		"container": {volume: "32Mi", container: "8Mi", node: "16Mi", want: "size=8192k"},
		"node":      {node: "16Mi", want: "size=16384k"},
		"init container without a limit": {container: "8Mi", node: "16Mi", want: "size=16384k",
			more: testpod.Init(v1.Container{Name: "init"})},
		"overhead": {container: "8Mi", node: "16Mi", want: "size=10240k",
			more: func(p *v1.Pod) { p.Spec.Overhead = memory }},
		"pod, CPU only": {node: "16Mi", want: "size=16384k", more: func(p *v1.Pod) {
			p.Spec.Resources = &v1.ResourceRequirements{Limits: cpu}
			p.Spec.Containers = append(p.Spec.Containers,
				v1.Container{Name: "limited", Resources: v1.ResourceRequirements{Limits: memory}})
		}},
		"pod": {node: "16Mi", want: "size=2048k",
			more: func(p *v1.Pod) { p.Spec.Resources = &v1.ResourceRequirements{Limits: memory} }},
	} {
		t.Run(name, func(t *testing.T) {
			list := func(q string) v1.ResourceList {
				if q == "" {
					return nil
				}
				return v1.ResourceList{v1.ResourceMemory: resource.MustParse(q)}
			}
			m, dir := contentManager(t, volume.Sources{Allocatable: list(tc.node)}), filepath.Join(t.TempDir(), "u1")
			src := v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
			if tc.volume != "" {
				src.SizeLimit = ptr.To(resource.MustParse(tc.volume))
			}
			p := pod(emptyDir("v", src))
			p.Spec.Containers[0].Resources.Limits = list(tc.container)
			if tc.more != nil {
				tc.more(p)
			}
			cleanUp(t, m, p, dir)
			ready, err := m.SetUp(t.Context(), p, dir)
			require.NoError(t, err)
			typ, options := mountOf(t, ready["v"].HostPath)
			assert.Equal(t, "tmpfs", typ)
			assert.Subset(t, options, []string{"nosuid", "nodev", tc.want})
			if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil &&
				!strings.HasPrefix(string(release), "5.") && !strings.HasPrefix(string(release), "6.1.") {
				assert.Contains(t, options, "noswap")
			}
		})
	}
}

func TestHugePages(t *testing.T) {
	requests := func(names ...v1.ResourceName) v1.Container {
		c := v1.Container{Name: string(rune('a' + len(names)))}
		c.Resources.Requests = v1.ResourceList{}
		for _, name := range names {
			c.Resources.Requests[name] = resource.MustParse("4Mi")
		}
		return c
	}
	for name, tc := range map[string]struct {
		medium v1.StorageMedium
		pod    *v1.Pod
		want   string
	}{
		"of the request":       {"HugePages", testpod.New("web", testpod.Container(requests("hugepages-2Mi"))), ""},
		"named":                {"HugePages-2Mi", testpod.New("web", testpod.Container(requests("hugepages-2Mi", "hugepages-1Gi"))), ""},
		"of an init container": {"HugePages-2048Ki", testpod.New("web", testpod.Init(requests("hugepages-2Mi"))), ""},
		"two sizes": {"HugePages", testpod.New("web", testpod.Container(requests("hugepages-2Mi"), requests("hugepages-1Gi", "cpu"))),
			"medium: HugePages can't be used if container requests multiple huge page sizes"},
		"no request":      {"HugePages", testpod.New("web", testpod.Container(requests("memory"))), "medium HugePages: hugePages storage requested, but there is no resource request for huge pages"},
		"of another size": {"HugePages-1Gi", testpod.New("web", testpod.Container(requests("hugepages-2Mi"))), "medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages"},
		"no size":         {"HugePages-x", testpod.New("web", testpod.Containers("main")), `storage medium "HugePages-x": "x" is no size`},
		"unknown":         {"Tape", testpod.New("web", testpod.Containers("main")), `unknown storage medium "Tape"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := testpod.With(tc.pod,
				testpod.Volumes(emptyDir("v", v1.EmptyDirVolumeSource{Medium: tc.medium,
					SizeLimit: ptr.To(resource.MustParse("5Mi"))})))
			m, dir := newManager(t), filepath.Join(t.TempDir(), "u1")
			defer func() { assert.NoError(t, m.Remove(context.WithoutCancel(t.Context()), kruntime.RefOf(p), dir)) }()
			if tc.want != "" {
				_, err := m.SetUp(t.Context(), p, dir)
				assert.ErrorContains(t, err, tc.want)
				return
			}
			needsMount(t)
			if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
				t.Skip("the kernel has no pages of 2 MiB")
			}
			for range 2 {
				ready, err := m.SetUp(t.Context(), p, dir)
				require.NoError(t, err)
				typ, options := mountOf(t, ready["v"].HostPath)
				assert.Equal(t, "hugetlbfs", typ)
				assert.Contains(t, options, "pagesize=2M")
				assert.Contains(t, options, "size=4194304", "the size limit, in whole pages")
				assert.Len(t, mounts(t, dir), 1)
			}
		})
	}
}

// The usage of a volume in memory is that of its file system: nothing in it is opened, so that it can
// be unmounted at any time.
func TestStatsOfMemory(t *testing.T) {
	needsMount(t)
	m, dir := newManager(t), t.TempDir()
	p := pod(emptyDir("v", v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory,
		SizeLimit: ptr.To(resource.MustParse("8Mi"))}))
	got, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Remove(context.Background(), kruntime.RefOf(p), dir)) })
	name := filepath.Join(got["v"].HostPath, "f")
	f, err := os.Create(name)
	require.NoError(t, err)
	defer func() { assert.NoError(t, f.Close()) }()
	_, err = f.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, os.Remove(name)) // no walk finds it
	stats, err := m.VolumeStats(t.Context(), p, dir)
	require.NoError(t, err)
	require.Len(t, stats, 1)
	assert.GreaterOrEqual(t, *stats[0].UsedBytes, uint64(1<<20))
	assert.Equal(t, uint64(8<<20), *stats[0].CapacityBytes)
	assert.Equal(t, uint64(2), *stats[0].InodesUsed)
}

// A volume on huge pages without a limit is walked: its file system reports no size.
func TestStatsOfHugePagesWithoutALimit(t *testing.T) {
	needsMount(t)
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
		t.Skip("the kernel has no pages of 2 MiB")
	}
	m, dir := newManager(t), t.TempDir()
	c := v1.Container{Name: "main"}
	c.Resources.Requests = v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}
	p := testpod.New("web", testpod.Container(c),
		testpod.Volumes(emptyDir("v", v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages})))
	got, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Remove(context.Background(), kruntime.RefOf(p), dir)) })
	require.NoError(t, os.Mkdir(filepath.Join(got["v"].HostPath, "sub"), 0o700))
	stats, err := m.VolumeStats(t.Context(), p, dir)
	require.NoError(t, err)
	require.Len(t, stats, 1)
	assert.Equal(t, uint64(2), *stats[0].InodesUsed)
}
