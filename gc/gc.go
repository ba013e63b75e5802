package gc

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Collector removes what pods leave behind in a container runtime. It must not
// remove a container that runs or a sandbox that is ready. [ContainerGC] is the
// default. Its methods are safe for concurrent use.
type Collector interface {
	// Run collects now and then until ctx ends, and then returns nil. Nothing is being
	// removed when it has returned. A second call returns an error that wraps
	// [runtime.ErrAlreadyRunning].
	Run(ctx context.Context) error
	// Kick requests a collection soon: pods have ended. It never blocks; several
	// requests before the collection begins are one.
	Kick()
	// CollectPod requests that the dead containers of one pod that the policy does not keep
	// are removed soon. It is called when a container of the pod has ended (kubelet:
	// cleanUpContainersInPod), so that a crash loop does not leave a container behind for
	// each crash until the next collection. It never blocks; of several requests for a pod
	// the latest counts.
	CollectPod(status *runtime.PodStatus)
	// DeleteUnused removes at once what no pod needs to run: the dead containers and sandboxes of pods that are gone or
	// have ended, the logs of those that are gone, and dead containers that the policy does not keep. It is for a node
	// that has no space. It returns when that is done. The error joins what could not be removed.
	DeleteUnused(ctx context.Context) error
	// Preview returns what a collection would decide on now. It removes nothing.
	Preview(ctx context.Context) (Preview, error)
	// Changed reports that something has happened in the runtime. A collector may leave periodic collections out while
	// it is not called. It never blocks.
	Changed()
}

// Preview is the input of a plan, and the plan.
type Preview struct {
	Input   Input
	Removal Removal
}

var _ Collector = (*ContainerGC)(nil)

// ListRemover is the part of a [runtime.Runtime] that a [ContainerGC] uses.
type ListRemover interface {
	runtime.Lister
	runtime.Remover
}

// Gone reports whether a pod is gone: it is not desired and has no worker. It must
// return false as long as the desired pods are not known.
type Gone = func(uid types.UID) bool
