package syncloop

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// refuse records that the pod was not admitted, and makes it Failed. A pod that runs,
// because an earlier agent has admitted it, is stopped by its worker as one that is evicted:
// with its grace period and hooks, and with a status that says how its containers have ended.
func (h *PodHandler) refuse(pod *v1.Pod, refusal *runtime.TerminalError) {
	h.log.Info("Pod refused", "pod", runtime.RefOf(pod), "reason", refusal.Reason, "message", refusal.Message)
	h.drop(pod)
	h.logged(pod, refusal.Reason, refusal.Message)
	h.record(pod, runtime.Record{Kind: runtime.KindRefuse, Reason: refusal.Reason, Message: refusal.Message})
	h.opts.Measure.Emit(Refused{refusal.Reason})
	reject := func(s *v1.PodStatus) {
		s.Phase, s.Reason, s.Message = v1.PodFailed, refusal.Reason, "Pod was rejected: "+refusal.Message
	}
	if podspec.IsFileName(pod.UID) && slices.ContainsFunc(h.before,
		func(old *runtime.Pod) bool { return old.UID == pod.UID }) {
		h.stopping[pod.UID] = struct{}{}
		h.update(podworkers.Update{Type: podworkers.Kill, Pod: pod, Kill: &podworkers.KillOptions{Status: reject}})
		return
	}
	h.refused[pod.UID] = struct{}{}
	if !h.deps.Workers.State(pod.UID).Known() { // an orphan with its UID still has what the pod had
		if err := h.deps.Steps.Refused(pod); err != nil {
			h.log.Error(err, "A component cannot take back what a refused pod was given", "pod", runtime.RefOf(pod))
		}
	}
	s := pod.Status.DeepCopy()
	reject(s)
	s.QOSClass = podspec.QOSClass(pod)
	h.deps.Status.Set(pod, *s)
}

// evict ends pods for one that was admitted, which starts when they have ended (kubelet: evictPodsToFreeRequests). A
// pod that is ending already frees what it holds anyway.
func (h *PodHandler) evict(list []lifecycle.Preemption, by *v1.Pod) {
	list = slices.DeleteFunc(list, func(e lifecycle.Preemption) bool {
		return e.Pod == nil || h.deps.Workers.State(e.Pod.UID).Terminated()
	})
	if len(list) == 0 {
		return
	}
	names, limit := make([]string, len(list)), leastEvictionTime
	for i, e := range list {
		names[i] = e.Pod.Namespace + "/" + e.Pod.Name
		limit = max(limit, limitOf(e))
	}
	release := h.deps.Steps.Postpone(by.UID, lifecycle.Wait("WaitingForPreemption",
		"waiting for the end of pods so that this one can run: "+strings.Join(names, ", ")), limit)
	var left atomic.Int64
	left.Store(int64(len(list)))
	ended := func() {
		if left.Add(-1) == 0 {
			release()
			// it ends the back-off
			h.deps.Workers.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: by, OnlyKnown: true})
		}
	}
	for _, e := range list {
		late := time.AfterFunc(limitOf(e), func() {
			h.emit(e.Pod, v1.EventTypeWarning, lifecycle.ReasonExceededGracePeriod,
				lifecycle.MessageExceededGracePeriod)
		})
		kill := &podworkers.KillOptions{Done: func() { late.Stop(); ended() }}
		if !h.deps.Workers.State(e.Pod.UID).TerminationRequested() {
			h.log.Info("Evicting a pod so that another one can run", "pod", runtime.RefOf(e.Pod),
				"by", runtime.RefOf(by), "reason", e.Reason, "message", e.Message)
			h.logged(e.Pod, e.Reason, e.Message)
			h.opts.Measure.Emit(Preempted{e.Resource})
			kill.Evict, kill.GracePeriod, kill.Status = true, e.GracePeriod, status.Evicted(e.Pod, e.Reason, e.Message)
		}
		h.deps.Workers.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: e.Pod, OnlyKnown: true, Kill: kill,
			Received: time.Now()})
	}
}

// leastEvictionTime is the least time that a pod waits for the end of others. It is kubelet's (killPodNow), which also
// waits for one and a half of the grace period.
const leastEvictionTime = 10 * time.Second

// limitOf returns how long the end of a pod may take.
func limitOf(e lifecycle.Preemption) time.Duration {
	grace := podspec.Seconds(ptr.Deref(e.GracePeriod, podspec.GracePeriod(e.Pod)))
	return max(leastEvictionTime, grace+grace/2)
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
