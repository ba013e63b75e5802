package fake

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/calls"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// The methods of a [Handler], for Fail, Hold and UntilCalled. Prepare and
// HandlePodCleanups are about no pod, and only they can fail.
const (
	Prepare            = "Prepare"
	HandlePodAdditions = "HandlePodAdditions"
	HandlePodUpdates   = "HandlePodUpdates"
	HandlePodRemoves   = "HandlePodRemoves"
	HandlePodReconcile = "HandlePodReconcile"
	HandlePodSyncs     = "HandlePodSyncs"
	HandlePodCleanups  = "HandlePodCleanups"
)

// Handler is a [syncloop.Handler] that does nothing. It is
// safe for concurrent use. A call that is held keeps the loop from going round.
type Handler struct {
	syncloop.Base
	calls.Log
}

var _ syncloop.Handler = (*Handler)(nil)

// NewHandler returns a handler with which all succeeds at once.
func NewHandler() *Handler { return &Handler{} }

func (h *Handler) handle(method string, pods []*v1.Pod) {
	refs := make([]runtime.PodRef, len(pods))
	for i, pod := range pods {
		refs[i] = runtime.RefOf(pod)
	}
	h.Note(calls.Call{Method: method, Pods: refs}, nil)
}

// Prepare implements [syncloop.Handler].
func (h *Handler) Prepare(ctx context.Context) error {
	return h.Do(ctx, calls.Call{Method: Prepare}, nil)
}

// HandlePodAdditions implements [syncloop.Handler].
func (h *Handler) HandlePodAdditions(pods []*v1.Pod) { h.handle(HandlePodAdditions, pods) }

// HandlePodUpdates implements [syncloop.Handler].
func (h *Handler) HandlePodUpdates(pods []*v1.Pod) { h.handle(HandlePodUpdates, pods) }

// HandlePodRemoves implements [syncloop.Handler].
func (h *Handler) HandlePodRemoves(pods []*v1.Pod) { h.handle(HandlePodRemoves, pods) }

// HandlePodReconcile implements [syncloop.Handler].
func (h *Handler) HandlePodReconcile(pods []*v1.Pod) { h.handle(HandlePodReconcile, pods) }

// HandlePodSyncs implements [syncloop.Handler].
func (h *Handler) HandlePodSyncs(pods []*v1.Pod) { h.handle(HandlePodSyncs, pods) }

// HandlePodCleanups implements [syncloop.Handler].
func (h *Handler) HandlePodCleanups(ctx context.Context) error {
	return h.Do(ctx, calls.Call{Method: HandlePodCleanups}, nil)
}
