package runtime

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// StatusCache caches pod statuses and orders them by [Mark]. [Cache] is the default;
// its methods document each contract in full. Implementations are safe for concurrent
// use. Statuses are shared and read-only.
type StatusCache interface {
	// Now draws a mark. A status with a greater mark was read after this call.
	Now() Mark
	// First returns the mark for the first read of a pod. An implementation that does
	// not use lists returns Now.
	First(uid types.UID) Mark
	// Get returns the last known status of the pod. It does not call the runtime. ok is
	// false if no status is known.
	Get(uid types.UID) (status *PodStatus, ok bool)
	// Newer returns a status of the pod that was read after the mark, from memory or
	// from the runtime. Its error is that of the inspection, or of ctx.
	Newer(ctx context.Context, ref PodRef, after Mark) (*PodStatus, error)
	// Seen returns the statuses of the pod that were read since the last call of Seen,
	// the older one first. An empty UID means all pods. Only the PLEG calls it.
	Seen(uid types.UID) []*PodStatus
	// ForgetUntil drops the results of reads of the pod that began no later than the
	// mark. It reports whether nothing newer is known or being read.
	ForgetUntil(uid types.UID, mark Mark) bool
	// Listed records a complete list of pods that was read after the mark.
	Listed(pods []*Pod, after Mark)
	// WatchStatus returns a channel that receives a value when the status of the pod in the
	// cache may show other containers, sandboxes or states than before, also when it is not
	// known any more. Changes that come before the value is taken are one value. The caller
	// calls stop when it does not need the channel any more.
	WatchStatus(uid types.UID) (changed <-chan struct{}, stop func())
}

var _ StatusCache = (*Cache)(nil)
