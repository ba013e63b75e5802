package syncloop

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// refuse records that the pod was not admitted, and makes it Failed. A pod that runs,
// because an earlier agent has admitted it, is stopped by its worker as one that is evicted:
// with its grace period and hooks, and with a status that says how its containers have ended.
func (h *PodHandler) refuse(pod *v1.Pod, refusal *runtime.TerminalError) {
	h.log.Info("Pod refused", "pod", runtime.RefOf(pod), "reason", refusal.Reason, "message", refusal.Message)
	h.drop(pod)
	h.emit(pod, v1.EventTypeWarning, refusal.Reason, refusal.Message)
	h.record(pod, runtime.Record{Kind: runtime.KindRefuse, Reason: refusal.Reason, Message: refusal.Message})
	reject := func(s *v1.PodStatus) {
		s.Phase, s.Reason, s.Message = v1.PodFailed, refusal.Reason, "Pod was rejected: "+refusal.Message
	}
	if podspec.IsFileName(pod.UID) && slices.ContainsFunc(h.before, func(old *runtime.Pod) bool { return old.UID == pod.UID }) {
		h.stopping[pod.UID] = struct{}{}
		h.update(podworkers.Update{Type: podworkers.Kill, Pod: pod, Kill: &podworkers.KillOptions{Status: reject}})
		return
	}
	h.refused[pod.UID] = struct{}{}
	s := pod.Status.DeepCopy()
	reject(s)
	s.QOSClass = podspec.QOSClass(pod)
	h.deps.Status.Set(pod, *s)
}

// evict ends pods for one that was admitted. A pod that is ending already, or has ended, frees what it holds
// anyway.
func (h *PodHandler) evict(list []lifecycle.Eviction) {
	for _, e := range list {
		if e.Pod == nil || h.deps.Workers.State(e.Pod.UID).TerminationRequested() {
			continue
		}
		h.log.Info("Evicting a pod so that another one can run", "pod", runtime.RefOf(e.Pod), "reason", e.Reason, "message", e.Message)
		h.emit(e.Pod, v1.EventTypeWarning, e.Reason, e.Message)
		h.update(podworkers.Update{Type: podworkers.Kill, Pod: e.Pod, OnlyKnown: true, Kill: &podworkers.KillOptions{
			Evict: true, GracePeriod: e.GracePeriod, Status: status.Evicted(e.Pod, e.Reason, e.Message),
		}})
	}
}

// updateRefused handles an update of a refused pod. It has no effect, unless it requests the
// deletion of the pod. Then a worker takes the pod down, which nothing else does, so that the
// source may delete it (kubelet: filterTerminalPodsToDelete).
func (h *PodHandler) updateRefused(pod *v1.Pod) {
	if pod.DeletionTimestamp != nil {
		delete(h.refused, pod.UID)
		h.stopping[pod.UID] = struct{}{}
		h.update(podworkers.Update{Type: podworkers.Kill, Pod: pod})
	}
}
