package syncloop

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The measurements of a [PodHandler].
type (
	// Counts has the numbers of pods after each cleanup, API pods first, static pods second: the desired ones, which
	// include those that were refused, and those of them that hold resources. kubelet_desired_pods and
	// kubelet_active_pods.
	Counts struct{ Desired, Active [2]int }
	// Admitted is a pod that was given to a worker: kubelet_containers_per_pod_count.
	Admitted struct{ Containers int }
	// Refused is a pod that was not admitted: kubelet_admission_rejections_total.
	Refused struct{ Reason string }
	// Preempted is a pod that is ended for one that needs the resource: kubelet_preemptions.
	Preempted struct{ Resource v1.ResourceName }
	// ResizeRequested is a change of a request or a limit of a container that runs. Requirement is "requests" or
	// "limits", Operation "add", "remove", "increase" or "decrease": kubelet_container_requested_resizes_total.
	ResizeRequested struct {
		Resource               v1.ResourceName
		Requirement, Operation string
	}
	// ResizesPending has the numbers of resizes that are pending, whenever one of them changes:
	// kubelet_pod_pending_resizes. A kind without resizes is missing.
	ResizesPending map[PendingKind]int
	// ResizeInfeasible is a resize that the node cannot carry out, with the [runtime.TerminalError].Detail of its
	// refusal: kubelet_pod_infeasible_resizes_total.
	ResizeInfeasible struct{ Detail string }
	// DeferredResizeEnded is a resize that was deferred, and is no more: kubelet_pod_deferred_resize_duration_seconds
	// and kubelet_pod_deferred_accepted_resizes_total.
	DeferredResizeEnded struct {
		// Priority is as in [PendingKind].
		Priority string
		// Resolution is [ResizeAccepted], [ResizeReverted] or [ResizeTerminated].
		Resolution string
		Took       time.Duration
	}
)

// The resolutions of a [DeferredResizeEnded].
const (
	ResizeAccepted   = "accepted"
	ResizeReverted   = "reverted"
	ResizeTerminated = "terminated"
)

// PendingKind is what [ResizesPending] counts by.
type PendingKind struct {
	// Reason is v1.PodReasonDeferred or v1.PodReasonInfeasible.
	Reason string
	// Priority is the range of the priority of the pod, such as "system-critical" or "normal", in kubelet's words.
	Priority string
}

// IsMeasurement implements [runtime.Measurement].
func (Counts) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Admitted) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Refused) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Preempted) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (ResizeRequested) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (ResizesPending) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (ResizeInfeasible) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (DeferredResizeEnded) IsMeasurement() {}

// count measures the numbers of pods. states are those of the workers.
func (h *PodHandler) count(states map[types.UID]podworkers.State) {
	if h.opts.Measure == nil {
		return
	}
	var n Counts
	for _, pod := range h.deps.Pods.Pods() {
		if podspec.IsMirror(pod) {
			continue
		}
		kind := 0
		if podspec.IsStatic(pod) {
			kind = 1
		}
		n.Desired[kind]++
		st, known := states[pod.UID]
		if known && !st.Terminated() && (st.TerminationRequested() || !h.finished(pod)) {
			n.Active[kind]++
		}
	}
	h.opts.Measure(n)
}

// priorityOf returns the range of the priority of a pod, in kubelet's words (metrics.GetPriorityBucketLabel).
func priorityOf(pod *v1.Pod) string {
	const critical, high = 2_000_000_000, 100_000
	switch p := ptr.Deref(pod.Spec.Priority, 0); {
	case p >= critical:
		return "system-critical"
	case p >= high:
		return "high"
	case p > 0:
		return "medium"
	case p == 0:
		return "normal"
	case p > -1000:
		return "low"
	default:
		return "very-low"
	}
}

// measureRequested measures what an update requests of the resources of containers that can be resized.
func (h *PodHandler) measureRequested(old, pod *v1.Pod) {
	if h.opts.Measure == nil || old == nil || !podspec.Resizable(pod) {
		return
	}
	if p, pending := h.resizes.get(pod.UID); pending {
		old = p.wanted
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		was, wasKind := podspec.FindContainer(&old.Spec, c.Name)
		if was == nil || wasKind != kind || kind == podspec.EphemeralContainer {
			continue
		}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			for requirement, lists := range map[string][2]v1.ResourceList{
				"requests": {was.Resources.Requests, c.Resources.Requests},
				"limits":   {was.Resources.Limits, c.Resources.Limits},
			} {
				if op := operation(lists[0][name], lists[1][name]); op != "" {
					h.opts.Measure(ResizeRequested{name, requirement, op})
				}
			}
		}
	}
}

// operation returns what a resize does to an amount, "" if nothing.
func operation(old, now resource.Quantity) string {
	switch c := now.Cmp(old); {
	case c == 0:
		return ""
	case old.IsZero():
		return "add"
	case now.IsZero():
		return "remove"
	case c > 0:
		return "increase"
	default:
		return "decrease"
	}
}

// setPending has the resize of the pod wait.
func (h *PodHandler) setPending(p pendingResize) {
	before, _ := h.resizes.get(p.wanted.UID)
	if before.condition.Reason == v1.PodReasonDeferred && p.condition.Reason != v1.PodReasonDeferred {
		h.deferredEnded(before, ResizeReverted)
	}
	h.resizes.set(p.wanted.UID, p)
	h.countPending()
}

// endPending ends the wait of the resize of the pod, if there is one.
func (h *PodHandler) endPending(uid types.UID, resolution string) {
	p, pending := h.resizes.get(uid)
	if !pending {
		return
	}
	h.resizes.remove(uid)
	h.deferredEnded(p, resolution)
	h.countPending()
}

func (h *PodHandler) deferredEnded(p pendingResize, resolution string) {
	if p.condition.Reason == v1.PodReasonDeferred {
		h.opts.Measure.Emit(DeferredResizeEnded{priorityOf(p.wanted), resolution, time.Since(p.since)})
	}
}

func (h *PodHandler) countPending() {
	if h.opts.Measure == nil {
		return
	}
	counts := ResizesPending{}
	h.resizes.mu.Lock()
	for _, p := range h.resizes.byUID {
		counts[PendingKind{p.condition.Reason, priorityOf(p.wanted)}]++
	}
	h.resizes.mu.Unlock()
	h.opts.Measure(counts)
}
