package cgroup_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/node/cgroup"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The numbers follow from UpdateCgroups in pkg/kubelet/cm/qos_container_manager_linux.go of kubelet 1.37.
func TestQOS(t *testing.T) {
	const gi = int64(1) << 30
	all := cgroup.Requests{BurstableCPU: 1500, GuaranteedMemory: gi, BurstableMemory: 2 * gi}
	pages := map[string]int64{"2MB": 1 << 62}

	plain := cgroup.QOS(all, cgroup.QOSPolicy{}, []string{"2MB"})
	zero := new(int64(0))
	assert.Equal(t, cgroup.QOSResources{
		Guaranteed: cgroup.Resources{MemoryMin: zero, MemoryLow: zero},
		Burstable:  cgroup.Resources{CPUShares: 1536, HugePages: pages, MemoryLow: zero},
		BestEffort: cgroup.Resources{CPUShares: 2, HugePages: pages},
	}, plain)
	assert.Equal(t, uint64(2), cgroup.QOS(cgroup.Requests{}, cgroup.QOSPolicy{}, nil).Burstable.CPUShares)

	reserved := cgroup.QOS(all, cgroup.QOSPolicy{ReservedMemory: new(int64(50)), AllocatableMemory: 8 * gi}, nil)
	assert.Equal(t, 8*gi-gi/2, reserved.Burstable.MemoryMax)
	assert.Equal(t, 8*gi-gi/2-gi, reserved.BestEffort.MemoryMax)
	assert.Zero(t, reserved.Guaranteed.MemoryMax)
	assert.Zero(t, cgroup.QOS(all, cgroup.QOSPolicy{ReservedMemory: new(int64(50))}, nil).Burstable.MemoryMax,
		"the memory of the node is not known")

	protected := cgroup.QOS(all, cgroup.QOSPolicy{MemoryReservation: true}, nil)
	assert.Equal(t, 3*gi, *protected.Guaranteed.MemoryMin)
	assert.Equal(t, 2*gi, *protected.Guaranteed.MemoryLow)
	assert.Equal(t, 2*gi, *protected.Burstable.MemoryLow)
}

// The numbers follow from getCgroupConfigInternal and GetNodeAllocatableAbsolute in pkg/kubelet/cm.
func TestNodeResources(t *testing.T) {
	capacity := list("2", "10Gi")
	capacity[cgroup.PIDs] = resource.MustParse("32768")
	capacity["hugepages-2Mi"] = resource.MustParse("100Mi")
	reserved := list("100m", "1Gi")
	reserved[cgroup.PIDs] = resource.MustParse("1000")
	amounts := podspec.Remaining(capacity, reserved)
	assert.Equal(t, cgroup.Resources{CPUShares: 1945, MemoryMax: 9 << 30, PidsMax: 31768,
		HugePages: map[string]int64{"2MB": 100 << 20}}, cgroup.NodeResources(amounts, false))
	assert.Equal(t, cgroup.Resources{CPUShares: 102}, cgroup.NodeResources(reserved, true))
	left := podspec.Remaining(list("1", ""), list("2", ""))[v1.ResourceCPU]
	assert.Equal(t, "0", left.String(), "never negative")
}
