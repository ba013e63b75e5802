package cgroup

import (
	"maps"
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Resources are the settings of a cgroup. The zero value changes none.
type Resources struct {
	// CPUShares is the weight in units of cgroup v1, from 2 to 262144: 1024 for each CPU that is requested. 0 means no
	// change. With cgroup v2 it becomes a weight from 1 to 10000, see [Weight].
	CPUShares uint64
	// CPUQuota is the CPU time in each CPUPeriod, both in microseconds. 0 means no change, [None] no limit.
	CPUQuota  int64
	CPUPeriod uint64
	// MemoryMax is the limit of memory in bytes. 0 means no change, [None] no limit.
	MemoryMax int64
	// MemoryMin is the memory in bytes that the kernel never reclaims, MemoryLow that it reclaims last. nil means no
	// change. Only cgroup v2 has them and MemoryHigh.
	MemoryMin, MemoryLow *int64
	// MemoryHigh is the memory in bytes above which the kernel slows down processes and reclaims. 0 means no change,
	// [None] no such memory.
	MemoryHigh int64
	// PidsMax is the limit of processes and threads. 0 means no change, [None] no limit.
	PidsMax int64
	// HugePages are the limits of memory in huge pages in bytes, by page size as in "2MB". Pages of sizes that are not
	// in it are forbidden. nil means no change.
	HugePages map[string]int64
	// CPUs is a list of CPUs such as 0-3,7. "" means no change.
	CPUs string
}

// None means that there is no limit.
const None = -1

// unlimitedPages is the limit of huge pages of the cgroups of classes, as in kubelet.
const unlimitedPages = 1 << 62

// Equal reports whether the settings are the same.
func (r Resources) Equal(o Resources) bool {
	same := func(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }
	return r.CPUShares == o.CPUShares && r.CPUQuota == o.CPUQuota && r.CPUPeriod == o.CPUPeriod &&
		r.MemoryMax == o.MemoryMax && r.MemoryHigh == o.MemoryHigh &&
		r.PidsMax == o.PidsMax && r.CPUs == o.CPUs && same(r.MemoryMin, o.MemoryMin) &&
		same(r.MemoryLow, o.MemoryLow) &&
		(r.HugePages == nil) == (o.HugePages == nil) && maps.Equal(r.HugePages, o.HugePages)
}

// The units of the kernel's CPU scheduler (Documentation/scheduler/sched-bwc.rst).
const (
	minShares     = 2
	maxShares     = 262144
	sharesPerCPU  = 1024
	minQuota      = 1000 // microseconds
	defaultPeriod = 100_000
	maxWeight     = 10_000
)

// Shares returns the weight of an amount of CPU in thousandths, in units of cgroup v1 (kubelet: MilliCPUToShares).
func Shares(milli int64) uint64 {
	if milli >= maxShares*1000/sharesPerCPU {
		return maxShares
	}
	return uint64(max(milli*sharesPerCPU/1000, minShares))
}

// Weight returns the weight of cgroup v2 for shares of cgroup v1. It is kubelet's linear one, so that the weights of
// pods have the ratio of their requests. (OCI runtimes convert the shares of containers by another function, which maps
// 1024 to 100.)
func Weight(shares uint64) uint64 {
	shares = min(max(shares, minShares), maxShares)
	return 1 + (shares-minShares)*(maxWeight-1)/(maxShares-minShares)
}

// sharesOf returns shares of cgroup v1 that have the weight of cgroup v2: those given if they do, otherwise the
// smallest ones.
func sharesOf(weight, given uint64) uint64 {
	if weight == 0 || Weight(given) == weight {
		return given
	}
	weight = min(weight, maxWeight)
	return minShares + ((weight-1)*(maxShares-minShares)+maxWeight-2)/(maxWeight-1)
}

// quota returns the CPU time of a limit in thousandths of a CPU in each period, both in microseconds; 0 if there is no
// limit (kubelet: MilliCPUToQuota).
func quota(milli, period int64) int64 {
	if milli <= 0 {
		return 0
	}
	return max(min(milli, math.MaxInt64/period)*period/1000, minQuota)
}

// amount returns an amount in the list, CPU in thousandths: at most so much that the amounts of all pods of a node have
// a sum.
func amount(list v1.ResourceList, name v1.ResourceName) int64 {
	return min(podspec.Amount(name, list[name]), 1<<50)
}

// Policy has what the resources of all pods depend on. The zero value is kubelet's default, without a limit of
// processes.
type Policy struct {
	// NoCPUQuota means that limits of CPU are not enforced (kubelet's cpuCFSQuota: false).
	NoCPUQuota bool
	// CPUPeriod is the period of limits of CPU in microseconds (cpuCFSQuotaPeriod). Default: 100000.
	CPUPeriod int64
	// PodPidsLimit is the limit of processes and threads of each pod (podPidsLimit). 0 or less means no limit.
	PodPidsLimit int64
	// MemoryReservation protects requested memory with cgroup v2: memory.min for Guaranteed pods, memory.low for
	// Burstable ones (the feature gate MemoryQoS with memoryReservationPolicy: TieredReservation, KEP-2570).
	MemoryReservation bool
	// MemoryThrottlingFactor is the place between request and limit of memory above which containers, and pods with
	// resources as a whole, are slowed down with cgroup v2 (kubelet's setting of that name, with the feature gate
	// MemoryQoS): above 0 and up to 1. 0 means nowhere.
	MemoryThrottlingFactor float64
}

// PodResources returns the resources of the cgroup of the pod (kubelet: ResourceConfigForPod). The overhead of the
// pod's RuntimeClass is part of them. Limits of the pod as a whole (KEP-2837) win over the sum of those of its
// containers. Without them there is a limit only if each container has one.
func PodResources(pod *v1.Pod, p Policy) Resources {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	cpuLimited, memoryLimited := limited(pod, v1.ResourceCPU), limited(pod, v1.ResourceMemory)
	if own := pod.Spec.Resources; own != nil {
		cpuLimited = cpuLimited || !own.Limits.Cpu().IsZero()
		memoryLimited = memoryLimited || !own.Limits.Memory().IsZero()
	}
	class := podspec.QOSClass(pod)
	r := Resources{CPUShares: minShares, HugePages: hugePages(requests)}
	if p.PodPidsLimit > 0 {
		r.PidsMax = p.PodPidsLimit
	}
	if class != v1.PodQOSBestEffort {
		r.CPUShares = Shares(amount(requests, v1.ResourceCPU))
		if cpuLimited || class == v1.PodQOSGuaranteed {
			period := p.CPUPeriod
			if period <= 0 {
				period = defaultPeriod
			}
			r.CPUPeriod, r.CPUQuota = uint64(period), quota(amount(limits, v1.ResourceCPU), period)
			if p.NoCPUQuota {
				r.CPUQuota = None
			}
		}
		if memoryLimited || class == v1.PodQOSGuaranteed {
			r.MemoryMax = amount(limits, v1.ResourceMemory)
		}
	}
	memory := amount(requests, v1.ResourceMemory)
	if resourcehelper.IsPodLevelResourcesSet(pod) && memoryLimited {
		r.MemoryHigh = memoryHigh(memory, amount(limits, v1.ResourceMemory), p.MemoryThrottlingFactor)
	}
	if p.MemoryReservation && memory > 0 {
		if class == v1.PodQOSGuaranteed {
			r.MemoryMin = &memory
		} else {
			r.MemoryLow = &memory
		}
	}
	return r
}

// limited reports whether each container of the pod has a limit of the resource. As in kubelet, an init container also
// counts as limited after a sidecar that has a limit: kubelet looks at the sum of what runs at that time.
func limited(pod *v1.Pod, name v1.ResourceName) bool {
	sidecar := false
	for kind, c := range podspec.Containers(&pod.Spec) {
		q := c.Resources.Limits[name]
		has := !q.IsZero()
		switch kind {
		case podspec.EphemeralContainer:
			continue
		case podspec.InitContainer:
			has = has || sidecar
			sidecar = sidecar || has && podspec.IsSidecar(c)
		}
		if !has {
			return false
		}
	}
	return true
}

// hugePages returns the amounts of huge pages in the list by page size. It is not nil.
func hugePages(list v1.ResourceList) map[string]int64 {
	pages := map[string]int64{}
	for name, amount := range list {
		if size, ok := podspec.HugePageSize(name); ok {
			pages[size] += amount.Value()
		}
	}
	return pages
}

// complete returns the resources with no limit of CPU time, memory and processes where they have none, for a cgroup
// that may have one from before.
func (r Resources) complete() Resources {
	if r.CPUQuota == 0 {
		r.CPUQuota = None
	}
	if r.MemoryMax == 0 {
		r.MemoryMax = None
	}
	if r.MemoryHigh == 0 {
		r.MemoryHigh = None
	}
	if r.PidsMax == 0 {
		r.PidsMax = None
	}
	return r
}

// withRoom returns the complete resources with those of the cgroup as far as these are larger and due: containers still
// hold them.
func (r Resources) withRoom(current Resources, due sizes) Resources {
	larger := func(a, b int64) int64 {
		if a == None || b == None {
			return None
		}
		return max(a, b)
	}
	protected := func(a, b *int64) *int64 {
		if a == nil || b != nil && *b > *a {
			return b
		}
		return a
	}
	if due.cpu {
		r.CPUShares = max(r.CPUShares, current.CPUShares)
		r.CPUQuota, r.CPUPeriod = larger(r.CPUQuota, current.CPUQuota), max(r.CPUPeriod, current.CPUPeriod)
	}
	if due.memory {
		r.MemoryMax = larger(r.MemoryMax, current.MemoryMax)
		r.MemoryHigh = larger(r.MemoryHigh, current.MemoryHigh)
		r.MemoryMin, r.MemoryLow = protected(r.MemoryMin, current.MemoryMin), protected(r.MemoryLow, current.MemoryLow)
	}
	return r
}

// sameSize reports whether CPU and memory of complete resources are the same.
func (r Resources) sameSize(o Resources) bool {
	return r.CPUShares == o.CPUShares && r.CPUQuota == o.CPUQuota && r.MemoryMax == o.MemoryMax
}

// requirements returns the resources in the words of the API, without requests of memory (kubelet:
// CPURequestsFromConfig, CPULimitsFromConfig, MemoryLimitsFromConfig). It is the inverse of [Shares] and of the
// conversion of quotas.
func (r Resources) requirements() *v1.ResourceRequirements {
	out := &v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	if r.CPUShares > 0 {
		milli := (int64(r.CPUShares)*1000 + sharesPerCPU - 1) / sharesPerCPU
		out.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
	}
	if r.CPUQuota > 0 && r.CPUPeriod > 0 {
		milli := int64(float64(r.CPUQuota) * 1000 / float64(r.CPUPeriod))
		out.Limits[v1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
	}
	if r.MemoryMax > 0 {
		out.Limits[v1.ResourceMemory] = *resource.NewQuantity(r.MemoryMax, resource.BinarySI)
	}
	return out
}
