package syncloop

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/resize"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// ResizeReporter is an optional interface of a [SyncHandler] that decides about resizes of
// pods (KEP-1287). It is found by [runtime.Optional].
type ResizeReporter interface {
	// ResizePending returns the condition PodResizePending of a pod that has requested other
	// resources and did not get them, and false if there is none. It is safe for concurrent
	// use.
	ResizePending(uid types.UID) (v1.PodCondition, bool)
}

var _ ResizeReporter = (*Handler)(nil)

// messagePodLevel is the message of a resize of the pod's own resources.
const messagePodLevel = "In-place resize of the resources of the pod as a whole is not supported"

// resizes has the pods whose resize is pending. These run with the resources that they had
// before.
type resizes struct {
	mu      sync.Mutex
	pending map[types.UID]pendingResize
}

type pendingResize struct {
	// wanted is the pod as its source has it.
	wanted    *v1.Pod
	condition v1.PodCondition
}

// ResizePending implements [ResizeReporter].
func (h *Handler) ResizePending(uid types.UID) (v1.PodCondition, bool) {
	h.resizes.mu.Lock()
	defer h.resizes.mu.Unlock()
	p, ok := h.resizes.pending[uid]
	return p.condition, ok
}

func (h *Handler) forgetResize(uid types.UID) {
	h.resizes.mu.Lock()
	defer h.resizes.mu.Unlock()
	delete(h.resizes.pending, uid)
}

// allocate returns the pod as it is to run: as its source has it, or with the resources of
// held, which it holds now, if it cannot get others.
func (h *Handler) allocate(held, pod *v1.Pod) *v1.Pod {
	if held == nil || !runtime.Resizable(pod) {
		return pod
	}
	kept := resize.WithResources(pod, held)
	switch {
	case kept == pod: // it may have been taken back
		h.forgetResize(pod.UID)
		return pod
	case pod.DeletionTimestamp != nil:
		return kept
	}
	refusal := h.refuseResize(pod, kept)
	if refusal == nil {
		h.forgetResize(pod.UID)
		h.emit(pod, v1.EventTypeNormal, "ResizeStarted", resize.Message("Pod resize started", pod, pod.Generation, ""))
		return pod
	}
	h.resizes.mu.Lock()
	before := h.resizes.pending[pod.UID].condition
	h.resizes.pending[pod.UID] = pendingResize{wanted: pod, condition: *refusal}
	h.resizes.mu.Unlock()
	if *refusal != before {
		h.emit(pod, v1.EventTypeWarning, "Resize"+refusal.Reason, resize.Message("Pod resize "+refusal.Reason, pod, pod.Generation, refusal.Message))
	}
	return kept
}

// refuseResize returns the condition PodResizePending if the pod cannot get the resources that
// it requests. kept is the pod with those that it has.
func (h *Handler) refuseResize(pod, kept *v1.Pod) *v1.PodCondition {
	c := &v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, ObservedGeneration: pod.Generation}
	if !equality.Semantic.DeepEqual(pod.Spec.Resources, kept.Spec.Resources) {
		c.Reason, c.Message = v1.PodReasonInfeasible, messagePodLevel
		return c
	}
	refusal := admit(h.opts.Admit, AdmitRequest{Pod: pod, Active: h.active([]*v1.Pod{pod}), Host: h.opts.Host})
	if refusal == nil {
		return nil
	}
	c.Reason, c.Message = v1.PodReasonDeferred, refusal.Message
	return c
}

// retryResizes gives the pods whose resize is deferred their resources if these are free now.
// Those that have waited longest have no precedence: the order is that of the desired pods.
func (h *Handler) retryResizes() {
	h.resizes.mu.Lock()
	none := len(h.resizes.pending) == 0
	h.resizes.mu.Unlock()
	if none {
		return
	}
	desired := map[types.UID]bool{}
	for _, held := range h.deps.Pods.Pods() {
		desired[held.UID] = true
		h.resizes.mu.Lock()
		p, pending := h.resizes.pending[held.UID]
		h.resizes.mu.Unlock()
		if !pending || p.condition.Reason != v1.PodReasonDeferred || h.deps.Workers.State(held.UID).TerminationRequested() {
			continue
		}
		if pod := h.allocate(held, p.wanted); pod == p.wanted {
			h.deps.Pods.Set(pod)
			h.keep(pod)
			h.update(podworkers.Update{Type: podworkers.Change, Pod: pod})
		}
	}
	h.resizes.mu.Lock()
	defer h.resizes.mu.Unlock()
	for uid := range h.resizes.pending {
		if !desired[uid] {
			delete(h.resizes.pending, uid)
		}
	}
}

// heldBefore returns the pod with the resources that it held when an earlier agent reported
// its status, nil if the status does not have them. The status has requests as they were allocated
// and limits as they were in force.
func heldBefore(pod *v1.Pod) *v1.Pod {
	if !runtime.Resizable(pod) || len(pod.Status.ContainerStatuses) == 0 {
		return nil
	}
	held := *pod
	set := func(list []v1.Container, statuses []v1.ContainerStatus) []v1.Container {
		list = slices.Clone(list)
		for i := range list {
			j := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == list[i].Name })
			if j < 0 || statuses[j].AllocatedResources == nil && statuses[j].Resources == nil {
				continue
			}
			r := &list[i].Resources
			if statuses[j].AllocatedResources != nil {
				r.Requests = statuses[j].AllocatedResources
			}
			if statuses[j].Resources != nil && statuses[j].State.Running != nil {
				r.Limits = statuses[j].Resources.Limits
			}
		}
		return list
	}
	held.Spec.Containers = set(pod.Spec.Containers, pod.Status.ContainerStatuses)
	held.Spec.InitContainers = set(pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	return &held
}
