package cgroup

import (
	"os"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// PIDs is the name of the resource of processes in the amounts that are reserved (systemReserved, kubeReserved) and in
// the capacity of a node. No pod requests it.
const PIDs v1.ResourceName = "pid"

// Requests are what the pods of a node request together, by their classes.
type Requests struct {
	// BurstableCPU is in thousandths of a CPU.
	BurstableCPU int64
	// GuaranteedMemory and BurstableMemory are in bytes.
	GuaranteedMemory, BurstableMemory int64
}

// requestsOf returns the part of a pod in [Requests].
func requestsOf(pod *v1.Pod) Requests {
	requests := podspec.Requests(pod)
	switch podspec.QOSClass(pod) {
	case v1.PodQOSGuaranteed:
		return Requests{GuaranteedMemory: amount(requests, v1.ResourceMemory)}
	case v1.PodQOSBurstable:
		return Requests{BurstableCPU: amount(requests, v1.ResourceCPU),
			BurstableMemory: amount(requests, v1.ResourceMemory)}
	}
	return Requests{}
}

func (r Requests) plus(o Requests) Requests {
	return Requests{r.BurstableCPU + o.BurstableCPU, r.GuaranteedMemory + o.GuaranteedMemory,
		r.BurstableMemory + o.BurstableMemory}
}

func (r Requests) minus(o Requests) Requests {
	return r.plus(Requests{-o.BurstableCPU, -o.GuaranteedMemory, -o.BurstableMemory})
}

// QOSPolicy has what the resources of the cgroups of classes depend on besides the pods.
type QOSPolicy struct {
	// ReservedMemory is the percentage of the requested memory of a class that the classes below it cannot use
	// (kubelet's qosReserved, with its feature gate). nil: none.
	ReservedMemory *int64
	// AllocatableMemory is the memory of all pods in bytes. With 0, ReservedMemory has no effect.
	AllocatableMemory int64
	// MemoryReservation is that of [Policy]. It needs cgroup v2.
	MemoryReservation bool
}

// QOSResources are the resources of the cgroups of classes. Guaranteed is the one of all pods, and has only what
// depends on classes.
type QOSResources struct {
	Guaranteed, Burstable, BestEffort Resources
}

// QOS returns the resources of the cgroups of classes (kubelet: qosContainerManagerImpl.UpdateCgroups). Huge pages are
// not limited; the page sizes are those of the machine.
func QOS(all Requests, p QOSPolicy, pageSizes []string) QOSResources {
	pages := make(map[string]int64, len(pageSizes))
	for _, size := range pageSizes {
		pages[size] = unlimitedPages
	}
	out := QOSResources{
		Burstable:  Resources{CPUShares: Shares(all.BurstableCPU), HugePages: pages},
		BestEffort: Resources{CPUShares: minShares, HugePages: pages},
	}
	minimum, low := int64(0), int64(0) // what another policy left is removed
	if p.MemoryReservation {           // the protection of a parent covers that of its children
		minimum, low = all.GuaranteedMemory+all.BurstableMemory, all.BurstableMemory
	}
	out.Guaranteed.MemoryMin, out.Guaranteed.MemoryLow, out.Burstable.MemoryLow = &minimum, &low, &low
	if percent := p.ReservedMemory; percent != nil && p.AllocatableMemory > 0 {
		out.Burstable.MemoryMax = p.AllocatableMemory - all.GuaranteedMemory**percent/100
		out.BestEffort.MemoryMax = out.Burstable.MemoryMax - all.BurstableMemory**percent/100
	}
	return out
}

// NodeResources returns the resources of a cgroup that gets the amounts: that of all pods, of the system, or of the
// agent (kubelet: getCgroupConfigInternal). compressible leaves everything out but CPU, of which a lack only slows
// down.
func NodeResources(amounts v1.ResourceList, compressible bool) Resources {
	var r Resources
	if q, ok := amounts[v1.ResourceCPU]; ok {
		r.CPUShares = Shares(q.MilliValue())
	}
	if compressible {
		return r
	}
	if q, ok := amounts[v1.ResourceMemory]; ok {
		r.MemoryMax = q.Value()
	}
	if q, ok := amounts[PIDs]; ok {
		r.PidsMax = q.Value()
	}
	r.HugePages = hugePages(amounts)
	return r
}

// MachinePIDs returns how many processes and threads the machine can have, for [PIDs] in ManagerOptions.Capacity. ok is
// false if the kernel does not tell.
func MachinePIDs() (n int64, ok bool) {
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && (!ok || limit < n) {
			n, ok = limit, true
		}
	}
	return n, ok
}
