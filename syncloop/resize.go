package syncloop

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// pendingResizes has the pods whose resize is pending, by their UIDs. They run with the resources
// that they had before.
type pendingResizes struct {
	mu    sync.Mutex
	byUID map[types.UID]pendingResize
}

type pendingResize struct {
	// wanted is a version of the pod with the resources that it requests.
	wanted    *v1.Pod
	condition v1.PodCondition
	// since is when the resize was refused with this reason, also by an earlier agent.
	since time.Time
}

func (r *pendingResizes) get(uid types.UID) (p pendingResize, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok = r.byUID[uid]
	return p, ok
}

func (r *pendingResizes) set(uid types.UID, p pendingResize) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byUID == nil {
		r.byUID = map[types.UID]pendingResize{}
	}
	r.byUID[uid] = p
}

func (r *pendingResizes) remove(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byUID, uid)
}

func (r *pendingResizes) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byUID) == 0
}

// ResizePending implements [Handler].
func (h *PodHandler) ResizePending(uid types.UID) (v1.PodCondition, bool) {
	p, ok := h.resizes.get(uid)
	return p.condition, ok
}

// allocate returns the pod as it is to run: as its source has it, or with the resources of
// held, which it holds now, if it cannot get others.
func (h *PodHandler) allocate(held, pod *v1.Pod) *v1.Pod {
	if held == nil || !podspec.Resizable(pod) {
		return pod
	}
	kept := podspec.WithResources(pod, held)
	switch {
	case kept == pod: // its resize may have been pending, and taken back
		h.endPending(pod.UID, ResizeReverted)
		return pod
	case pod.DeletionTimestamp != nil:
		return kept
	}
	refusal, detail := h.refuseResize(pod, kept)
	if refusal == nil {
		h.endPending(pod.UID, ResizeAccepted)
		h.emit(pod, v1.EventTypeNormal, "ResizeStarted", podspec.ResizeMessage("Pod resize started", pod,
			pod.Generation, ""))
		return pod
	}
	p, pending := h.resizes.get(pod.UID)
	before := p.condition
	if !pending { // an earlier agent may have reported it
		before = podspec.ReportedCondition(pod, v1.PodResizePending)
	}
	since := p.since
	if refusal.Reason != before.Reason {
		since = time.Now()
	} else if !pending {
		since = before.LastTransitionTime.Time
	}
	h.setPending(pendingResize{wanted: pod, condition: *refusal, since: since})
	if refusal.Reason != before.Reason || refusal.ObservedGeneration != before.ObservedGeneration {
		if refusal.Reason == v1.PodReasonInfeasible {
			h.opts.Measure.Emit(ResizeInfeasible{detail})
		}
		h.emit(pod, v1.EventTypeWarning, "Resize"+refusal.Reason, podspec.ResizeMessage("Pod resize "+refusal.Reason,
			pod, pod.Generation, refusal.Message))
	}
	return kept
}

// refuseResize returns the condition PodResizePending if the pod cannot get the resources that
// it requests, and the detail of the refusal. kept is the pod with those that it has.
func (h *PodHandler) refuseResize(pod, kept *v1.Pod) (condition *v1.PodCondition, detail string) {
	c := &v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, ObservedGeneration: pod.Generation}
	response, refusal := admit(h.opts.Admit, lifecycle.AdmitRequest{Pod: pod, Held: kept,
		Active: h.active([]*v1.Pod{pod}), Host: h.opts.Host})
	if refusal == nil {
		h.evict(response.Evict, pod)
		return nil, ""
	}
	c.Reason, c.Message = v1.PodReasonDeferred, refusal.Message
	if refusal.Reason == v1.PodReasonInfeasible {
		c.Reason = refusal.Reason
	}
	return c, refusal.Detail
}

// resize is a change of the resources of a pod that runs.
type resize struct {
	held, wanted *v1.Pod
	pending      pendingResize
}

// increases reports whether the pod requests more than it holds.
func (r resize) increases() bool {
	held, wanted := podspec.Requests(r.held), podspec.Requests(r.wanted)
	return wanted.Cpu().Cmp(*held.Cpu()) > 0 || wanted.Memory().Cmp(*held.Memory()) > 0
}

// inOrder sorts resizes as kubelet does (sortPendingResizes): first those that request no more than before, then by
// priority, by class of service, and by the time that they have waited.
func inOrder(list []resize) {
	first := func(a, b bool) int { // those that are true
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}
	guaranteed := func(r resize) bool { return podspec.QOSClass(r.held) == v1.PodQOSGuaranteed }
	slices.SortStableFunc(list, func(a, b resize) int {
		return cmp.Or(
			first(!a.increases(), !b.increases()),
			cmp.Compare(ptr.Deref(b.held.Spec.Priority, 0), ptr.Deref(a.held.Spec.Priority, 0)),
			first(guaranteed(a), guaranteed(b)),
			a.pending.since.Compare(b.pending.since),
		)
	})
}

// retryPendingResizes gives the pods whose resize is deferred their resources if these are free now.
func (h *PodHandler) retryPendingResizes() {
	if h.resizes.empty() {
		return
	}
	var due []resize
	for _, held := range h.deps.Pods.Pods() {
		p, pending := h.resizes.get(held.UID)
		if !pending || p.condition.Reason != v1.PodReasonDeferred ||
			h.deps.Workers.State(held.UID).TerminationRequested() {
			continue
		}
		// the rest of p.wanted may be out of date
		due = append(due, resize{held, podspec.WithResources(held, p.wanted), p})
	}
	inOrder(due)
	for _, r := range due {
		if pod := h.allocate(r.held, r.wanted); pod == r.wanted {
			h.apply(r.held, pod)
		} else if now, _ := h.resizes.get(r.held.UID); now.condition != r.pending.condition {
			h.HandlePodSyncs([]*v1.Pod{r.held}) // for its status
		}
	}
}

// heldBefore returns the pod with the resources that it held when an earlier agent reported its
// status. It returns the pod itself if these are the same, or if the status does not have them.
func heldBefore(pod *v1.Pod) *v1.Pod {
	if !podspec.Resizable(pod) || allocated(pod) {
		return pod
	}
	held := *pod
	if reported := pod.Status.Resources; reported != nil {
		held.Spec.Resources = podspec.HeldByPod(pod, pod.Status.AllocatedResources, reported.Limits)
	}
	held.Spec.Containers = withReported(pod.Spec.Containers, pod.Status.ContainerStatuses)
	held.Spec.InitContainers = withReported(pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	return podspec.WithResources(pod, &held)
}

// asAllocated returns the pod for the checkpoint, with a status by which it holds the resources in
// its spec. The status of its source may be older.
func asAllocated(pod *v1.Pod) *v1.Pod {
	if !podspec.Resizable(pod) || allocated(pod) {
		return pod
	}
	kept := *pod
	kept.Status.ObservedGeneration = pod.Generation
	kept.Status.Conditions = slices.DeleteFunc(slices.Clone(pod.Status.Conditions),
		func(c v1.PodCondition) bool { return c.Type == v1.PodResizePending })
	return &kept
}

// allocated reports whether the pod holds the resources in its spec by its status: an agent that
// has observed a generation and reports no pending resize has allocated its resources.
func allocated(pod *v1.Pod) bool {
	return pod.Status.ObservedGeneration == pod.Generation && podspec.ReportedCondition(pod,
		v1.PodResizePending).Type == ""
}

// withReported returns the containers with the resources in their statuses. These have requests as
// they were allocated, also if there were none, and limits as they were in force, or were
// allocated to a container that does not run. A limit that the spec does not have is that of the
// whole pod, because a resize removes none.
func withReported(list []v1.Container, statuses []v1.ContainerStatus) []v1.Container {
	list = slices.Clone(list)
	for i := range list {
		j := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == list[i].Name })
		if j < 0 || statuses[j].Resources == nil {
			continue // it has not started, or its agent does not report resources
		}
		wanted, limits := list[i].Resources.Limits, maps.Clone(statuses[j].Resources.Limits)
		maps.DeleteFunc(limits, func(name v1.ResourceName, _ resource.Quantity) bool {
			_, ok := wanted[name]
			return !ok
		})
		list[i].Resources.Requests, list[i].Resources.Limits = statuses[j].AllocatedResources, limits
	}
	return list
}
