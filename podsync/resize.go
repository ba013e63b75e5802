package podsync

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/resize"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// resizeState is what is remembered of the resize of a pod.
type resizeState struct {
	// done is the pod whose containers have its resources as far as the runtime can give them.
	// It may report others: a node without limits of CPU time has none.
	done *v1.Pod
	// problem is why the last SyncPod could not change the resources of running containers.
	problem string
	// pending is the condition PodResizePending in the latest status, zero if there is none.
	// since is the generation that PodResizeInProgress in it is about, 0 if there is none.
	pending v1.PodCondition
	since   int64
}

// resizePending returns the condition PodResizePending, zero if there is none.
func (s *Syncer) resizePending(pod *v1.Pod) v1.PodCondition {
	if s.opts.ResizePending == nil || !runtime.Resizable(pod) {
		return v1.PodCondition{}
	}
	c, _ := s.opts.ResizePending(pod.UID)
	return c
}

// resizeConditions returns the conditions of a resize for the latest inputs, and reports its
// end. st.mu is held.
func (s *Syncer) resizeConditions(st *podState) []v1.PodCondition {
	pod := st.last.pod
	st.resize.pending = v1.PodCondition{}
	if st.last.phase != phaseSync || !runtime.Resizable(pod) {
		st.resize.since = 0
		return nil
	}
	var out []v1.PodCondition
	if st.resize.pending = s.resizePending(pod); st.resize.pending.Type != "" {
		out = append(out, st.resize.pending)
	}
	if st.resize.done == pod || !resizing(pod, st.last.observed) {
		if st.resize.since != 0 {
			s.emit(runtime.RefOf(pod), v1.EventTypeNormal, "ResizeCompleted", resize.Message("Pod resize completed", pod, pod.Generation, ""))
		}
		st.resize.since = 0
		return out
	}
	if st.resize.since == 0 {
		st.resize.since = pod.Generation
	}
	c := v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, ObservedGeneration: st.resize.since}
	if st.resize.problem != "" {
		c.Reason, c.Message = v1.PodReasonError, st.resize.problem
	}
	return append(out, c)
}

// resizing reports whether a running container has other resources than the pod.
func resizing(pod *v1.Pod, observed *runtime.PodStatus) bool {
	for kind, c := range runtime.Containers(&pod.Spec) {
		if len(runtime.ResizeDue(pod, c, kind, observed.Newest(c.Name))) > 0 {
			return true
		}
	}
	return false
}

// setResized records the outcome of a SyncPod, and brings the status up to date if the reason
// of a failure has changed.
func (s *Syncer) setResized(st *podState, pod *v1.Pod, problem string, err error) {
	if !runtime.Resizable(pod) {
		return
	}
	s.refresh(st, func() bool {
		before := st.resize.problem
		st.resize.problem = problem
		if problem == "" {
			if err == nil {
				st.resize.done = pod
			}
			return false // the next sync, which follows a change at once, reads what is in force
		}
		if problem != before {
			s.warn(pod, "ResizeError", resize.Message("Pod resize error", pod, pod.Generation, problem))
		}
		return problem != before
	})
}
