package runtime

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// StatusCache is what the parts of an agent need of a cache of pod statuses.
// [Cache] is the default; its methods document the contract of each.
type StatusCache interface {
	// Now draws a mark: a status with a greater mark was read after this call.
	Now() Mark
	// First returns the mark for the first read of a pod. An implementation that does
	// not record lists returns Now.
	First(uid types.UID) Mark
	// Get returns the last known status of the pod without a call to the runtime.
	Get(uid types.UID) (*PodStatus, bool)
	// Newer returns a status of the pod that was read after the mark, from memory or
	// from the runtime. The status is shared and must not be changed.
	Newer(ctx context.Context, ref PodRef, after Mark) (*PodStatus, error)
	// Seen returns what was read of the pod since the last call, the older first. An
	// empty UID means all pods. Only the PLEG calls it.
	Seen(uid types.UID) []*PodStatus
	// ForgetUntil drops what reads that began no later than the mark returned about the
	// pod, and reports whether nothing newer is known or being read.
	ForgetUntil(uid types.UID, mark Mark) bool
	// Listed records a complete list of pods that was read after the mark.
	Listed(pods []*Pod, after Mark)
}

var _ StatusCache = (*Cache)(nil)
