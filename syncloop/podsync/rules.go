package podsync

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// kubelet's reason and message for a pod past its activeDeadlineSeconds.
const (
	reasonDeadline  = "DeadlineExceeded"
	messageDeadline = "Pod was active on the node longer than the specified deadline"
)

// reasonEvicted is kubelet's reason for a pod that uses more of the node than it may.
const reasonEvicted = "Evicted"

// pastActiveDeadline reports whether the pod has been active for longer than its spec allows. If
// not, left is the remaining time, 0 without a deadline.
//
// The start time of the status is compared with the wall clock once. From then on the monotonic clock
// counts, so that a jump of the wall clock neither ends the pod nor prolongs it.
func (st *podState) pastActiveDeadline(pod *v1.Pod, api *v1.PodStatus, now time.Time) (past bool, left time.Duration) {
	if pod.Spec.ActiveDeadlineSeconds == nil || api.StartTime.IsZero() {
		return false, 0
	}
	if start := api.StartTime.Time; !st.start.Equal(start) {
		// A start in the future is from before the clock was set back.
		st.start, st.began = start, now.Add(-max(now.Sub(start), 0))
	}
	left = podspec.Seconds(*pod.Spec.ActiveDeadlineSeconds) - now.Sub(st.began)
	return left <= 0, max(left, 0)
}

// hasProbes reports whether the pod has probes on which its status depends.
func hasProbes(probes runtime.ProbeResults, pod *v1.Pod) bool {
	for _, c := range podspec.Containers(&pod.Spec) {
		if runtime.HasProbe(probes, pod, c, runtime.StartupProbe) || runtime.HasProbe(probes, pod, c,
			runtime.ReadinessProbe) {
			return true
		}
	}
	return false
}

// reasonCreating is kubelet's reason of containers that were not created yet.
func reasonCreating(pod *v1.Pod) string {
	if len(pod.Spec.InitContainers) > 0 {
		return "PodInitializing"
	}
	return "ContainerCreating"
}

// waitingAll returns the result of a sync that failed before the runtime was called: the
// containers that were not created yet wait. The reason is kubelet's, whatever the failure
// is; kubelet has no message.
func waitingAll(pod *v1.Pod, observed *runtime.PodStatus, err error) runtime.SyncResult {
	reason := reasonCreating(pod)
	w := map[string]v1.ContainerStateWaiting{}
	for _, c := range podspec.Containers(&pod.Spec) {
		if observed.Newest(c.Name) == nil {
			w[c.Name] = v1.ContainerStateWaiting{Reason: reason, Message: err.Error()}
		}
	}
	return runtime.SyncResult{Waiting: w}
}
