package translate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestCPUUnits(t *testing.T) {
	for milli, want := range map[int64]struct{ shares, quota int64 }{
		0:         {2, 0},
		1:         {2, 1000}, // 100 µs would be less than the kernel takes
		3:         {3, 1000},
		10:        {10, 1000},
		11:        {11, 1100},
		500:       {512, 50_000},
		1000:      {1024, 100_000},
		1_000_000: {262144, 100_000_000},
	} {
		assert.Equal(t, want.shares, cpuShares(milli), milli)
		assert.Equal(t, want.quota, cpuQuota(milli, 100_000), milli)
	}
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}
	r := (&Node{CPUPeriod: 20 * time.Millisecond}).linuxResources(nil, limits)
	assert.Equal(t, []int64{20_000, 10_000, 512}, []int64{r.CpuPeriod, r.CpuQuota, r.CpuShares})
	r = (&Node{NoCPUQuota: true}).linuxResources(v1.ResourceList{v1.ResourceCPU: resource.MustParse("0")}, limits)
	assert.Equal(t, []int64{0, 0, 2}, []int64{r.CpuPeriod, r.CpuQuota, r.CpuShares})
}

// In an update, a runtime takes 0 for no change.
func TestResizedResources(t *testing.T) {
	resources := func(n *Node, limits v1.ResourceList) []int64 {
		spec := &v1.Container{Resources: v1.ResourceRequirements{Limits: limits}}
		r := ResizedResources(&Container{Pod: &Pod{Spec: &v1.Pod{}, Node: n, Host: &runtime.Host{}}, Spec: spec})
		assert.Nil(t, r.HugepageLimits)
		return []int64{r.CpuShares, r.CpuQuota, r.MemoryLimitInBytes}
	}
	both := v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("1Ki")}
	hugepages := &Node{HugepageSizes: []string{"2MB"}}
	assert.Equal(t, []int64{512, 50_000, 1024}, resources(hugepages, both))
	assert.Equal(t, []int64{2, -1, -1}, resources(hugepages, nil))
	assert.Equal(t, []int64{512, 0, 1024}, resources(&Node{NoCPUQuota: true}, both))
}

// A container with CPUs of its own has no limit of CPU time, also after a resize.
func TestContainerWithItsOwnCPUs(t *testing.T) {
	in := sample(func(c *Container) {
		c.Spec.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
		c.Edits.CPUSet, c.Edits.NoCPUQuota = "2-3", true
	})
	for _, r := range []*criv1.LinuxContainerResources{containerResources(in), ResizedResources(in)} {
		assert.Equal(t, "2-3", r.CpusetCpus)
		assert.Equal(t, []int64{2048, -1}, []int64{r.CpuShares, r.CpuQuota})
	}
	in.Pod.Node = &Node{NoCPUQuota: true}
	assert.Zero(t, containerResources(in).CpuQuota)
}

// The swap of a container does not change in an update. With cgroup v1 the limit of the sum has to follow that of
// memory.
func TestSwapOfAResize(t *testing.T) {
	in := sample(func(c *Container) {
		c.Spec.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	})
	in.Pod.Node.SwapControl = true
	assert.Equal(t, int64(1<<30), ResizedResources(in).MemorySwapLimitInBytes)
	in.Pod.Node.CgroupV2 = true
	assert.Equal(t, "0", containerResources(in).Unified[swapMax])
	r := ResizedResources(in)
	assert.NotContains(t, r.Unified, swapMax)
	assert.Contains(t, r.Unified, "memory.oom.group")
	assert.Zero(t, r.MemorySwapLimitInBytes)
}

func TestOOMScoreCapacity(t *testing.T) {
	in := sample(func(c *Container) {
		c.Spec.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	})
	assert.Equal(t, int64(999), oomScoreAdj(in), "nothing is known")
	in.Pod.Host.Allocatable = v1.ResourceList{v1.ResourceMemory: resource.MustParse("4Gi")}
	assert.Equal(t, int64(750), oomScoreAdj(in), "allocatable memory")
	in.Pod.Node.MemoryCapacity = 8 << 30
	assert.Equal(t, int64(875), oomScoreAdj(in), "capacity")
	in.Pod.Node.MemoryCapacity = 1 << 20
	assert.Equal(t, int64(3), oomScoreAdj(in), "more than there is")
}

// A pod that requests less than its containers takes nothing from what they request. Validation refuses it.
func TestOOMScoreOfASmallPod(t *testing.T) {
	in := sample(func(c *Container) {
		c.Spec.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	})
	in.Pod.Node.MemoryCapacity = 4 << 30
	in.Pod.Spec.Spec.Containers = []v1.Container{*in.Spec}
	in.Pod.Spec.Spec.Resources = &v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("512Mi")}}
	assert.Equal(t, int64(750), oomScoreAdj(in))
	in.Pod.Spec.Spec.Resources.Requests[v1.ResourceMemory] = resource.MustParse("2Gi")
	assert.Equal(t, int64(500), oomScoreAdj(in))
}

func TestNodeCritical(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{PriorityClassName: systemNodeCritical}}
	assert.False(t, isNodeCritical(pod))
	pod.Spec.Priority = new(int32(2_000_000_000))
	assert.True(t, isNodeCritical(pod))
	pod.Spec.Priority = nil
	pod.Annotations = map[string]string{podspec.AnnotationConfigSource: "file"}
	assert.True(t, isNodeCritical(pod))
	pod.Spec.PriorityClassName = "system-cluster-critical"
	assert.False(t, isNodeCritical(pod))
}

func TestStopSignals(t *testing.T) {
	for n, name := range criv1.Signal_name {
		signal := StopSignalFromCRI(criv1.Signal(n))
		if n == 0 {
			assert.Nil(t, signal)
			continue
		}
		require.NotNil(t, signal, name)
		assert.Regexp(t, `^SIG[A-Z0-9]+([+-]\d+)?$`, string(*signal))
		in := sample(func(c *Container) { c.Spec.Lifecycle = &v1.Lifecycle{StopSignal: signal} })
		config, err := ContainerConfig(t.Context(), in)
		require.NoError(t, err)
		assert.Equal(t, criv1.Signal(n), config.StopSignal)
	}
	assert.Equal(t, v1.SIGRTMINPLUS15, *StopSignalFromCRI(criv1.Signal_SIGNAL_SIGRTMINPLUS15))
	assert.Equal(t, v1.SIGRTMAXMINUS1, *StopSignalFromCRI(criv1.Signal_SIGNAL_SIGRTMAXMINUS1))
	assert.Nil(t, StopSignalFromCRI(1000))
	for _, odd := range []v1.Signal{"", "TERM", "RUNTIME_DEFAULT", "SIGNOPE"} {
		_, err := stopSignal(&v1.Container{Lifecycle: &v1.Lifecycle{StopSignal: &odd}})
		assert.EqualError(t, err, fmt.Sprintf("unknown stopSignal %q", odd))
	}
}

func TestMaskedPaths(t *testing.T) {
	in := sample(func(c *Container) { c.Pod.Node.MaskedPaths = []string{"/sys/x"} })
	first, err := ContainerConfig(t.Context(), in)
	require.NoError(t, err)
	assert.Contains(t, first.Linux.SecurityContext.MaskedPaths, "/proc/kcore")
	assert.Contains(t, first.Linux.SecurityContext.MaskedPaths, "/sys/x")
	first.Linux.SecurityContext.ReadonlyPaths[0] = "changed"
	second, err := ContainerConfig(t.Context(), in)
	require.NoError(t, err)
	assert.NotContains(t, second.Linux.SecurityContext.ReadonlyPaths, "changed")
}

func TestProfileErrors(t *testing.T) {
	for want, sc := range map[string]*v1.SecurityContext{
		`unknown seccomp profile type: "Odd"`:     {SeccompProfile: &v1.SeccompProfile{Type: "Odd"}},
		`unknown apparmor profile type: "Odd"`:    {AppArmorProfile: &v1.AppArmorProfile{Type: "Odd"}},
		"missing localhost apparmor profile name": {AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost}},
	} {
		_, err := ContainerConfig(t.Context(), sample(func(c *Container) { c.Spec.SecurityContext = sc }))
		assert.EqualError(t, err, want)
	}
}

func TestImageOf(t *testing.T) {
	uid, name := ImageOf("r", &criv1.Image{}).user()
	assert.Equal(t, int64(0), *uid, "nothing means root")
	assert.Empty(t, name)
	uid, name = ImageOf("r", &criv1.Image{Uid: &criv1.Int64Value{Value: 7}, Username: "ignored"}).user()
	assert.Equal(t, int64(7), *uid)
	assert.Empty(t, name)
	uid, name = ImageOf("r", &criv1.Image{Username: "nobody"}).user()
	assert.Nil(t, uid)
	assert.Equal(t, "nobody", name)
	assert.Equal(t, "r", ImageOf("r", nil).Ref)
}

func ExampleContainerConfig() {
	pod := &Pod{
		Spec: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1234"},
			Spec: v1.PodSpec{Containers: []v1.Container{{
				Name:    "main",
				Image:   "busybox",
				Command: []string{"echo", "$(GREETING)"},
				Env: []v1.EnvVar{
					{Name: "POD", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
					{Name: "GREETING", Value: "hello from $(POD)"},
				},
			}}},
		},
		Host: &runtime.Host{PodLogsDir: "/var/log/pods"},
		Node: &Node{},
	}
	sandbox, err := SandboxConfig(pod, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	container, err := ContainerConfig(context.Background(), &Container{Pod: pod, Spec: &pod.Spec.Spec.Containers[0]})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sandbox.Hostname, strings.Join(container.Command, " "))
	fmt.Println(sandbox.LogDirectory + "/" + container.LogPath)
	// Output:
	// web echo hello from web
	// /var/log/pods/default_web_1234/main/0.log
}
