package runtime

import "context"

// CPUSetter is an optional interface of a [Runtime], found with [Optional]: the CPUs of its running containers can be
// changed.
type CPUSetter interface {
	// SetCPUSet allows the container the CPUs of the list, such as "0-3,7", and no others. All else that the container
	// may use stays as it is. The error wraps [ErrNotFound] if there is no such container.
	SetCPUSet(ctx context.Context, id ContainerID, cpus string) error
}
