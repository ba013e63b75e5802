package node

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Resources has resources of the node: the machine's, or those of devices.
type Resources interface {
	// NodeResources returns the capacity of the resources of this source. A resource that is gone
	// for now has the capacity 0: a resource that is not returned any more stays in the node
	// object. allocatable has the amounts that pods can have; of a resource that is not in it, pods
	// can have the amount of [Allocatable].
	NodeResources(ctx context.Context) (capacity, allocatable v1.ResourceList, err error)
}

// Info has the facts of the machine.
type Info interface {
	// NodeInfo returns the facts of the machine. ContainerRuntimeVersion is ignored, since
	// [Options].Runtime has it.
	NodeInfo(ctx context.Context) (v1.NodeSystemInfo, error)
}

// Addresses has the addresses of the node.
type Addresses interface {
	// NodeAddresses returns the addresses, the most important one first. An error leaves the
	// addresses of the node object as they are.
	NodeAddresses(ctx context.Context) ([]v1.NodeAddress, error)
}

// Images has the images that are on the node.
type Images interface {
	// NodeImages returns the images in the order in which they are reported: [ImageList] has
	// kubelet's order. The slice is not changed by anyone. It is called from a goroutine of its
	// own, each [Options].UpdateFrequency, and may take its time.
	NodeImages(ctx context.Context) ([]v1.ContainerImage, error)
}
