package podsync

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// resizeState is what is remembered of the latest resize of a pod.
type resizeState struct {
	// pod is the pod in the latest status, nil before the first.
	pod *v1.Pod
	// pending is the condition PodResizePending in the latest status, zero if there is none.
	pending v1.PodCondition
	// generation is that of the condition PodResizeInProgress, 0 if there is none. problem is
	// the latest error of the resize.
	generation int64
	problem    string
	// volumes means that the sizes of volumes may have to change. The runtime does not report these: only done ends the
	// resize.
	volumes bool
	// done means that pod and containers have the resources of the spec as far as the node can give them: a sync
	// had nothing to change. It may report others: a node without limits of CPU time has none.
	done bool
}

// follow begins a resize if the pod has other resources than the one before. The first pod
// continues that of an earlier agent, which its status has.
func (r *resizeState) follow(pod *v1.Pod) {
	before := r.pod
	r.pod = pod
	switch {
	case !podspec.Resizable(pod):
	case before == nil:
		c := podspec.ReportedCondition(pod, v1.PodResizeInProgress)
		r.generation, r.problem = c.ObservedGeneration, c.Message
		r.done = r.generation == 0 && pod.Status.ObservedGeneration == pod.Generation
		r.volumes = r.generation != 0 && slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
			return podspec.MemoryVolumeLimit(&v) != nil
		})
	case !podspec.SameResources(before, pod):
		r.generation, r.problem, r.done = pod.Generation, "", false
		volumesOf := func(pod *v1.Pod) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{Volumes: pod.Spec.Volumes}} }
		r.volumes = r.volumes || !podspec.SameResources(volumesOf(before), volumesOf(pod))
	}
}

// resizePending returns the condition PodResizePending, zero if there is none.
func (s *Syncer) resizePending(pod *v1.Pod) v1.PodCondition {
	if s.opts.ResizePending == nil || !podspec.Resizable(pod) {
		return v1.PodCondition{}
	}
	c, _ := s.opts.ResizePending(pod.UID)
	return c
}

// resizeConditions returns the conditions of a resize for the latest inputs, and the message of its
// end, "" if it has not ended. st.mu is held.
func (st *podState) resizeConditions(pending v1.PodCondition) (out []v1.PodCondition, completed string) {
	r, pod := &st.resize, st.last.pod
	if st.last.phase != phaseSync {
		r.pending, r.generation = v1.PodCondition{}, 0
		return nil, ""
	}
	r.follow(pod)
	if r.pending = pending; r.pending.Type != "" {
		out = append(out, r.pending)
	}
	// The first status of this agent is made before the cgroup of the pod was read: whether a resize has ended is not
	// known then.
	unknown := r.generation != 0 && pod.Spec.Resources != nil &&
		st.last.observed.ContainersRunning() && st.last.observed.Resources == nil
	if r.done || !r.volumes && !unknown && !resizing(pod, st.last.observed) {
		if r.generation != 0 {
			completed = podspec.ResizeMessage("Pod resize completed", pod, r.generation, "")
		}
		r.generation, r.problem, r.volumes = 0, "", false
		return out, completed
	}
	r.generation = cmp.Or(r.generation, pod.Generation)
	c := v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, ObservedGeneration: r.generation}
	if r.problem != "" {
		c.Reason, c.Message = v1.PodReasonError, r.problem
	}
	return append(out, c), ""
}

// ResizeInProgress is the measurement of the begin or the end of the condition PodResizeInProgress of a pod:
// kubelet_pod_in_progress_resizes is the number of those that have begun and not ended.
type ResizeInProgress struct{ Began bool }

// IsMeasurement implements [runtime.Measurement].
func (ResizeInProgress) IsMeasurement() {}

// measureResize measures whether the pod has the condition PodResizeInProgress. One goroutine at a time calls it for a
// pod, that of generate.
func (s *Syncer) measureResize(st *podState, conditions []v1.PodCondition) {
	in := slices.ContainsFunc(conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodResizeInProgress })
	if in != st.resizeMeasured {
		st.resizeMeasured = in
		s.opts.Measure.Emit(ResizeInProgress{in})
	}
}

// resizing reports whether the pod as a whole or a running container has other resources than the spec, or a container
// is to be restarted for them.
func resizing(pod *v1.Pod, observed *runtime.PodStatus) bool {
	if len(runtime.PodResizeDue(pod, observed)) > 0 {
		return true
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if n := observed.Newest(c.Name); len(runtime.ResizeDue(pod, c, kind, n)) > 0 ||
			runtime.ResizeRestarts(pod, c, n) {
			return true
		}
	}
	return false
}

// setResized records the outcome of a SyncPod, and brings the status up to date with another
// error of a resize. An error stays until the resize ends or another one begins (kubelet:
// SetPodResizeInProgressCondition).
func (s *Syncer) setResized(st *podState, pod *v1.Pod, res runtime.SyncResult, err error) {
	if !podspec.Resizable(pod) {
		return
	}
	problem, message := res.ResizeError, ""
	s.refresh(st, func() bool {
		r := &st.resize
		if problem == "" {
			if r.done || err != nil || res.Changed {
				return false // the next sync, which follows a change at once, reads what is in force
			}
			r.done = true
			return r.generation != 0
		}
		r.done = false
		if problem == r.problem {
			return false
		}
		r.problem, r.generation = problem, cmp.Or(r.generation, pod.Generation)
		message = podspec.ResizeMessage("Pod resize error", pod, r.generation, problem)
		return true
	})
	if message != "" {
		s.warn(pod, "ResizeError", message)
	}
}
