package podresources

import (
	v1 "k8s.io/api/core/v1"
	apiv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

// Resources are what a container holds, or what the node has.
type Resources struct {
	Devices []Devices
	// CPUs are exclusive ones.
	CPUs   cpuset.CPUSet
	Memory []Memory
	Claims []Claim
}

// Devices are devices of one resource on the same memory nodes.
type Devices struct {
	Resource v1.ResourceName
	IDs      []string
	// Nodes is empty if the devices have no topology.
	Nodes numa.Nodes
}

// Memory is an amount of memory, or of huge pages, on some nodes.
type Memory struct {
	Resource v1.ResourceName
	Size     uint64 // in bytes
	Nodes    numa.Nodes
}

// Claim is a ResourceClaim that a container uses.
type Claim struct {
	Namespace, Name string
	Devices         []ClaimDevice
}

// ClaimDevice is a device that the claim was given.
type ClaimDevice struct {
	Driver, Pool, Device string
	// ShareID is that of a share of the device, if it is shared.
	ShareID string
	// CDIDevices are qualified names of the Container Device Interface.
	CDIDevices []string
}

// add adds other resources.
func (r *Resources) add(other Resources) {
	r.Devices = append(r.Devices, other.Devices...)
	r.Memory = append(r.Memory, other.Memory...)
	r.Claims = append(r.Claims, other.Claims...)
	r.CPUs = r.CPUs.Union(other.CPUs)
}

func topologyOf(nodes numa.Nodes) *apiv1.TopologyInfo {
	if nodes == 0 {
		return nil
	}
	t := &apiv1.TopologyInfo{}
	for id := range nodes.All() {
		t.Nodes = append(t.Nodes, &apiv1.NUMANode{ID: int64(id)})
	}
	return t
}

// devicesV1 returns, as kubelet, an entry for each device and each of its nodes.
func (r *Resources) devicesV1() (out []*apiv1.ContainerDevices) {
	for _, d := range r.Devices {
		for _, id := range d.IDs {
			add := func(nodes numa.Nodes) {
				out = append(out, &apiv1.ContainerDevices{ResourceName: string(d.Resource), DeviceIds: []string{id},
					Topology: topologyOf(nodes)})
			}
			if d.Nodes == 0 {
				add(0)
			}
			for node := range d.Nodes.All() {
				add(numa.Of(node))
			}
		}
	}
	return out
}

func (r *Resources) cpusV1() (out []int64) {
	for _, id := range r.CPUs.List() {
		out = append(out, int64(id))
	}
	return out
}

func (r *Resources) memoryV1() (out []*apiv1.ContainerMemory) {
	for _, m := range r.Memory {
		out = append(out, &apiv1.ContainerMemory{MemoryType: string(m.Resource), Size: m.Size,
			Topology: topologyOf(m.Nodes)})
	}
	return out
}

func (r *Resources) claimsV1() (out []*apiv1.DynamicResource) {
	for _, c := range r.Claims {
		claim := &apiv1.DynamicResource{ClaimName: c.Name, ClaimNamespace: c.Namespace}
		for _, d := range c.Devices {
			device := &apiv1.ClaimResource{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Device}
			if d.ShareID != "" {
				device.ShareId = &d.ShareID
			}
			for _, name := range d.CDIDevices {
				device.CdiDevices = append(device.CdiDevices, &apiv1.CDIDevice{Name: name})
			}
			claim.ClaimResources = append(claim.ClaimResources, device)
		}
		out = append(out, claim)
	}
	return out
}
