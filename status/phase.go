package status

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// progress is the state of a container as far as the phase of its pod depends on it.
type progress int

const (
	unknown    progress = iota // no status, or one without a state
	unstarted                  // waits, and has never run
	running                    // runs
	restarting                 // has ended and will be started again
	succeeded                  // has ended and stays so, with code 0
	failed                     // has ended and stays so, with another code
)

func progressOf(pod *v1.Pod, c *v1.Container, kind podspec.ContainerKind, s *v1.ContainerStatus) progress {
	if s == nil {
		return unknown
	}
	ended := s.State.Terminated
	switch {
	case s.State.Running != nil:
		return running
	case ended != nil:
	case s.State.Waiting == nil:
		return unknown
	case s.LastTerminationState.Terminated == nil:
		return unstarted
	default:
		ended = s.LastTerminationState.Terminated
	}
	switch {
	case podspec.ShouldRestart(pod, c, kind, ended.ExitCode), ended.Reason == reasonRestartingAll:
		return restarting
	case ended.ExitCode == 0:
		return succeeded
	default:
		return failed
	}
}

// phaseOf derives the phase from the states of the containers (kubelet: getPhase).
//
// stopped means that no container is restarted any more, whatever the restart policy.
// initialized means that main containers have been created in the current sandbox: a
// sidecar that restarts does not make the pod Pending then. restartsAll means that all containers are being restarted,
// whatever their policies.
func phaseOf(pod *v1.Pod, s *v1.PodStatus, stopped, initialized, restartsAll bool) v1.PodPhase {
	initializing, sidecarPending := false, false
	var count [failed + 1]int

	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		cs := findStatus(s.InitContainerStatuses, c.Name)
		p := progressOf(pod, c, podspec.InitContainer, cs)
		if restartsAll && (p == failed || p == succeeded) {
			p = restarting
		}
		if !podspec.IsSidecar(c) {
			switch p {
			case failed:
				return v1.PodFailed
			case unknown, unstarted, running:
				initializing = true
			}
			continue
		}
		// A sidecar that has ended does not count, whether it will be started again or not.
		switch p {
		case unknown:
			count[unknown]++
			sidecarPending = sidecarPending || cs != nil
		case unstarted:
			count[unstarted]++
			sidecarPending = true
		case running:
			count[running]++
			sidecarPending = sidecarPending || cs.Started == nil || !*cs.Started
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		cs := findStatus(s.ContainerStatuses, c.Name)
		p := progressOf(pod, c, podspec.MainContainer, cs)
		if restartsAll && (p == failed || p == succeeded) {
			p = restarting
		}
		if p == restarting && stopped {
			p = succeeded
			if exitCode(cs) != 0 {
				p = failed
			}
		}
		count[p]++
	}

	switch {
	case initializing, sidecarPending && !initialized, count[unstarted] > 0, count[unknown] > 0:
		return v1.PodPending
	case count[running]+count[restarting] > 0:
		return v1.PodRunning
	case count[failed] > 0:
		return v1.PodFailed
	case count[succeeded] > 0:
		return v1.PodSucceeded
	default:
		return v1.PodPending
	}
}

// exitCode returns the exit code of the last instance that has ended.
func exitCode(s *v1.ContainerStatus) int32 {
	if s.State.Terminated != nil {
		return s.State.Terminated.ExitCode
	}
	return s.LastTerminationState.Terminated.ExitCode
}
