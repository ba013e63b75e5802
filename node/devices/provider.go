package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Device is one device of a resource.
type Device struct {
	// ID is unique among the devices of the resource. It is not empty.
	ID string
	// Unhealthy means that no further container gets the device. One that has it keeps it.
	Unhealthy bool
	// Nodes are the memory nodes that the device is near to. The empty set means that no node is better than another
	// one.
	Nodes numa.Nodes
}

// Request is the devices of one resource for one container. Pod and Container are shared and read-only.
type Request struct {
	Pod       *v1.Pod
	Container *v1.Container
	// IDs are those of the devices, in their order.
	IDs []string
}

// PreferRequest asks for the best devices.
type PreferRequest struct {
	// Available are the IDs of the devices that can be chosen, with those of Required.
	Available []string
	// Required are the IDs of the devices that the container gets in any case.
	Required []string
	// Count is the number of devices that the container gets, with those of Required.
	Count int
}

// Provider has the devices of one resource. Its methods are called concurrently. A method that hangs or fails holds
// only the pod that it is called for. The contexts have deadlines, see [Options].
type Provider interface {
	// Resource is the name of the extended resource that pods request in their limits, such as "example.com/modbus". It
	// does not change.
	Resource() v1.ResourceName
	// Watch calls update with all devices, at once and after each change, until ctx ends. If it returns before, the
	// provider is gone: see [Manager.Serve]. update does not keep the slice. It may be called by one goroutine at a
	// time.
	Watch(ctx context.Context, update func([]Device)) error
	// Prefer returns the IDs of the devices that the provider would give. Those that are not available are ignored, and
	// others are chosen if there are too few. It is called before Allocate, if there is a choice.
	Prefer(ctx context.Context, req PreferRequest) ([]string, error)
	// Allocate makes the devices ready for the container, and returns what the container is created with. Of the edits,
	// environment variables, annotations, mounts, devices and names of CDI are used. It is called once for a container
	// of a pod; the result is kept for its restarts and for later agents. After an error it is called again.
	Allocate(ctx context.Context, req Request) (runtime.ContainerEdits, error)
	// PreStart is called before each start of the container. An error keeps it from being created, and the call is
	// repeated.
	PreStart(ctx context.Context, req Request) error
}

// Base has the methods of a [Provider] without preferences and without anything to do before a start, to embed.
type Base struct{}

// Prefer implements [Provider].
func (Base) Prefer(context.Context, PreferRequest) ([]string, error) { return nil, nil }

// PreStart implements [Provider].
func (Base) PreStart(context.Context, Request) error { return nil }

// Fixed returns a provider of devices that do not change and are always healthy. The keys are their IDs. A container is
// created with the edits of all devices that it has.
func Fixed(resource v1.ResourceName, edits map[string]runtime.ContainerEdits) Provider {
	return fixed{resource: resource, edits: maps.Clone(edits)}
}

type fixed struct {
	Base
	resource v1.ResourceName
	edits    map[string]runtime.ContainerEdits
}

func (f fixed) Resource() v1.ResourceName { return f.resource }

func (f fixed) Watch(ctx context.Context, update func([]Device)) error {
	var all []Device
	for id := range f.edits {
		all = append(all, Device{ID: id})
	}
	update(all)
	<-ctx.Done()
	return nil
}

func (f fixed) Allocate(_ context.Context, req Request) (all runtime.ContainerEdits, err error) {
	for _, id := range req.IDs {
		one, ok := f.edits[id]
		if !ok {
			return runtime.ContainerEdits{}, fmt.Errorf("there is no device %q", id)
		}
		all.Merge(one)
	}
	all.Devices = slices.Clip(all.Devices)
	return all, nil
}
