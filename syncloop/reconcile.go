package syncloop

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// HandlePodReconcile implements [Handler]. It records the pods with their new status.
// A pod with readiness gates is synced, because the conditions of these may have changed.
// So is one that is Succeeded or Failed, so that its worker stops it: another
// client may have set the phase.
func (h *PodHandler) HandlePodReconcile(pods []*v1.Pod) {
	for _, pod := range pods {
		old, _ := h.deps.Pods.ByUID(pod.UID)
		pod, _ = withinLimit(old, pod)
		if old != nil && podspec.Resizable(pod) { // its resources are those that it holds
			pod = podspec.WithResources(pod, old)
		}
		h.deps.Pods.Set(pod)
		ended := podspec.IsPhaseTerminal(pod.Status.Phase)
		if _, refused := h.refused[pod.UID]; (ended || probesDiffer(old, pod)) && !refused && !podspec.IsMirror(pod) {
			h.keep(pod)
		}
		if ended && !h.deps.Workers.State(pod.UID).TerminationRequested() || len(pod.Spec.ReadinessGates) > 0 {
			h.HandlePodSyncs([]*v1.Pod{pod})
		}
	}
}

// probesDiffer reports whether containers have other results of probes in the statuses of two
// pods. The next agent takes the results over: until its own probes have run, readiness stays
// as it is (KEP-4781).
func probesDiffer(a, b *v1.Pod) bool {
	return a == nil ||
		!slices.EqualFunc(a.Status.ContainerStatuses, b.Status.ContainerStatuses, sameProbes) ||
		!slices.EqualFunc(a.Status.InitContainerStatuses, b.Status.InitContainerStatuses, sameProbes)
}

func sameProbes(a, b v1.ContainerStatus) bool {
	return a.ContainerID == b.ContainerID && a.Ready == b.Ready && ptr.Deref(a.Started, false) == ptr.Deref(b.Started,
		false)
}
