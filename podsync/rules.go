package podsync

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// The words that kubelet uses for a pod past its activeDeadlineSeconds.
const (
	reasonDeadline  = "DeadlineExceeded"
	messageDeadline = "Pod was active on the node longer than the specified deadline"
)

// reasonEvicted is the reason of a pod that took more of the node than it may.
const reasonEvicted = "Evicted"

// usagePeriod is how often volumes with a size limit are measured (kubelet: the
// period of its eviction manager's monitoring).
const usagePeriod = 10 * time.Second

// pastDeadline reports whether the pod has been active for longer than its spec
// allows, and if not how long it has left; 0 means that it has no deadline.
func pastDeadline(pod *v1.Pod, api *v1.PodStatus, now time.Time) (past bool, left time.Duration) {
	if pod.Spec.ActiveDeadlineSeconds == nil || api.StartTime.IsZero() {
		return false, 0
	}
	left = api.StartTime.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second).Sub(now)
	return left <= 0, max(left, 0)
}

// hasProbes reports whether there are probes that have a say in the pod's status.
func hasProbes(probes runtime.ProbeResults, pod *v1.Pod) bool {
	for _, c := range runtime.Containers(&pod.Spec) {
		if runtime.HasProbe(probes, pod, c, runtime.StartupProbe) || runtime.HasProbe(probes, pod, c, runtime.ReadinessProbe) {
			return true
		}
	}
	return false
}

// soonest is the shorter of two durations of which 0 means never.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// waitingAll is the result of a sync that did not get as far as the runtime: every
// container of the pod waits for the same reason.
func waitingAll(pod *v1.Pod, reason string, err error) runtime.SyncResult {
	w := map[string]v1.ContainerStateWaiting{}
	for _, c := range runtime.Containers(&pod.Spec) {
		w[c.Name] = v1.ContainerStateWaiting{Reason: reason, Message: err.Error()}
	}
	return runtime.SyncResult{Waiting: w}
}
