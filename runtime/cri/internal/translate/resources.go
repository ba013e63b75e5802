package translate

import (
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Units of the kernel's CPU scheduler (Documentation/scheduler/sched-bwc.rst).
const (
	sharesPerCPU  = 1024
	minShares     = 2
	maxShares     = 262144
	minQuotaMicro = 1000
	defaultPeriod = 100 * time.Millisecond
)

// cpuShares returns the weight of an amount of CPU.
func cpuShares(milli int64) int64 {
	return min(max(milli*sharesPerCPU/1000, minShares), maxShares)
}

// cpuQuota returns the CPU time of a limit in each period, both in microseconds. 0 means no
// limit.
func cpuQuota(milli, period int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period/1000, minQuotaMicro)
}

// linuxResources returns the common part of the resources of sandboxes, overhead and
// containers. A missing request is the limit.
func (n *Node) linuxResources(requests, limits v1.ResourceList) *criv1.LinuxContainerResources {
	weight := *limits.Cpu()
	if request, ok := requests[v1.ResourceCPU]; ok {
		weight = request
	}
	r := &criv1.LinuxContainerResources{
		CpuShares:          cpuShares(weight.MilliValue()),
		MemoryLimitInBytes: limits.Memory().Value(),
	}
	if !n.NoCPUQuota {
		r.CpuPeriod = n.period()
		r.CpuQuota = cpuQuota(limits.Cpu().MilliValue(), r.CpuPeriod)
	}
	if n.CgroupV2 && !n.KillProcessesSingly {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// period returns the CPU period in microseconds.
func (n *Node) period() int64 {
	if n.CPUPeriod <= 0 {
		return defaultPeriod.Microseconds()
	}
	return n.CPUPeriod.Microseconds()
}

// containerResources returns the resources of one container. Missing limits of CPU and
// memory are those of its pod.
func containerResources(in *Container) *criv1.LinuxContainerResources {
	pod, node := in.Pod.Spec, in.Pod.Node
	own := &in.Spec.Resources
	if in.Edits.Resources != nil {
		own = in.Edits.Resources
	}
	limits := v1.ResourceList{v1.ResourceCPU: *own.Limits.Cpu(), v1.ResourceMemory: *own.Limits.Memory()}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		for name, limit := range limits {
			if limit.IsZero() {
				limits[name] = pod.Spec.Resources.Limits[name]
			}
		}
	}
	r := node.linuxResources(own.Requests, limits)
	r.OomScoreAdj = oomScoreAdj(in)
	r.CpusetCpus, r.CpusetMems = in.Edits.CPUSet, in.Edits.MemorySet
	if in.Edits.NoCPUQuota && r.CpuPeriod != 0 {
		r.CpuQuota = -1
	}
	r.HugepageLimits = hugepageLimits(node.HugepageSizes, pod, in.Spec)
	if node.SwapControl {
		limitSwap(r, node.CgroupV2, in.Edits.MemorySwap)
	}
	if len(in.Edits.Unified) > 0 && node.CgroupV2 {
		if r.Unified == nil {
			r.Unified = map[string]string{}
		}
		maps.Copy(r.Unified, in.Edits.Unified)
	}
	return r
}

// ResizedResources returns the resources to give to a running instance of the container. In
// an update 0 means no change to a runtime, so a limit that is not there is -1.
func ResizedResources(in *Container) *criv1.LinuxContainerResources {
	r := containerResources(in)
	if r.CpuQuota == 0 && !in.Pod.Node.NoCPUQuota {
		r.CpuQuota = -1
	}
	if r.MemoryLimitInBytes == 0 {
		r.MemoryLimitInBytes = -1
	}
	r.HugepageLimits = nil // they do not change
	delete(r.Unified, swapMax)
	return r
}

// swapMax is the file of cgroup v2 with the limit of swap.
const swapMax = "memory.swap.max"

// limitSwap limits the swap of the container, to 0 if swap is nil. In cgroup v1 it is always 0: the limit is for the
// sum of memory and swap, and has no effect without a limit on memory.
func limitSwap(r *criv1.LinuxContainerResources, cgroupV2 bool, swap *int64) {
	if !cgroupV2 {
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
		return
	}
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	r.Unified[swapMax] = strconv.FormatInt(max(0, ptr.Deref(swap, 0)), 10)
}

// sandboxResources returns the sum of the resources of the pod's containers.
func sandboxResources(in *Pod) *criv1.LinuxContainerResources {
	if r := in.Edits.Resources; r != nil {
		return in.Node.linuxResources(r.Requests, r.Limits)
	}
	opts := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	return in.Node.linuxResources(resourcehelper.PodRequests(in.Spec, opts), resourcehelper.PodLimits(in.Spec, opts))
}

// SandboxResize has the resources that a sandbox gets Before its containers are resized, and After
// that; After is nil if they are the same.
type SandboxResize struct {
	Before, After, Overhead *criv1.LinuxContainerResources
}

// ResizeSandbox returns the steps from the resources that containers had, by their names, and those of the pod as a
// whole, to those of the spec; nil means that the latter do not change. Before the containers the sandbox gets more,
// and after them less, so that it always has what they may use. If the edits of the pod have resources, these are the
// only step.
func ResizeSandbox(in *Pod, old map[string]v1.ResourceRequirements, whole *v1.ResourceRequirements) SandboxResize {
	to := updatedResources(in)
	r := SandboxResize{Before: to, Overhead: overheadResources(in)}
	if in.Edits.Resources != nil {
		return r
	}
	pod := *in.Spec
	if whole != nil {
		pod.Spec.Resources = whole
	}
	had := func(list []v1.Container) []v1.Container {
		list = slices.Clone(list)
		for i := range list {
			if resources, ok := old[list[i].Name]; ok {
				list[i].Resources = resources
			}
		}
		return list
	}
	pod.Spec.InitContainers, pod.Spec.Containers = had(pod.Spec.InitContainers), had(pod.Spec.Containers)
	held := *in
	held.Spec = &pod
	from := updatedResources(&held)

	r.Before = &criv1.LinuxContainerResources{
		CpuShares: max(from.CpuShares, to.CpuShares), CpuPeriod: to.CpuPeriod,
		CpuQuota:           looser(from.CpuQuota, to.CpuQuota),
		MemoryLimitInBytes: looser(from.MemoryLimitInBytes, to.MemoryLimitInBytes),
	}
	if b := r.Before; b.CpuShares != to.CpuShares || b.CpuQuota != to.CpuQuota ||
		b.MemoryLimitInBytes != to.MemoryLimitInBytes {
		r.After = to
	}
	return r
}

// looser returns the limit that permits more; 0 is no limit.
func looser(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// updatedResources are the resources of the pod's cgroup in kubelet, without overhead: there is a limit
// only if the pod or each of its containers has one (kubelet: ResourceConfigForPod).
func updatedResources(in *Pod) *criv1.LinuxContainerResources {
	r := sandboxResources(in)
	r.Unified = nil // it does not change
	if in.Edits.Resources != nil {
		return r
	}
	own := v1.ResourceList{}
	if resourcehelper.IsPodLevelResourcesSet(in.Spec) {
		own = in.Spec.Spec.Resources.Limits
	}
	for kind, c := range podspec.Containers(&in.Spec.Spec) {
		if kind == podspec.EphemeralContainer {
			continue
		}
		if c.Resources.Limits.Cpu().IsZero() && own.Cpu().IsZero() {
			r.CpuQuota = 0
		}
		if c.Resources.Limits.Memory().IsZero() && own.Memory().IsZero() {
			r.MemoryLimitInBytes = 0
		}
	}
	return r
}

// overheadResources returns the resources of the sandbox itself. Overhead is both request
// and limit.
func overheadResources(in *Pod) *criv1.LinuxContainerResources {
	overhead := in.Spec.Spec.Overhead
	if overhead == nil {
		return &criv1.LinuxContainerResources{}
	}
	return in.Node.linuxResources(nil, overhead)
}

// hugepageLimits returns a limit for each size of huge pages, 0 where neither the container
// nor its pod has one.
func hugepageLimits(sizes []string, pod *v1.Pod, c *v1.Container) []*criv1.HugepageLimit {
	wanted := map[string]uint64{}
	add := func(limits v1.ResourceList) {
		for name, amount := range limits {
			if size, ok := podspec.HugePageSize(name); ok {
				wanted[size] = uint64(amount.Value())
			}
		}
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		add(pod.Spec.Resources.Limits)
	}
	add(c.Resources.Limits) // takes precedence over the pod's
	out := make([]*criv1.HugepageLimit, len(sizes))
	for i, size := range sizes {
		out[i] = &criv1.HugepageLimit{PageSize: size, Limit: wanted[size]}
	}
	return out
}
