package podspec

import v1 "k8s.io/api/core/v1"

// The largest sizes of a pod that an agent runs, far above those of real pods. They bound what
// one pod costs all others.
const (
	// MaxContainers is the maximum number of containers of a pod. What is computed for a pod may
	// take the square of it: with 100,000 containers, minutes for each status.
	MaxContainers = 1000
	// MaxReferences is the maximum number of secrets and config maps that a pod refers to. Each of them
	// has a watch, which takes about 50 kB.
	MaxReferences = 1000
)

// BoundedReferences calls of for the pod, which returns the secrets and config maps that a pod refers to.
// within reports whether these are at most MaxReferences.
//
// Users of an API server add ephemeral containers to a pod that runs, and the pod goes on. So if the pod
// is within the limit only without its ephemeral containers, refs are the references without them, and
// all are the references with them. Otherwise all is nil.
func BoundedReferences[R any](pod *v1.Pod, of func(*v1.Pod) []R) (refs, all []R, within bool) {
	refs = of(pod)
	if len(refs) > MaxReferences && len(pod.Spec.EphemeralContainers) > 0 {
		without := *pod
		without.Spec.EphemeralContainers = nil
		if less := of(&without); len(less) <= MaxReferences {
			return less, refs, true
		}
	}
	return refs, nil, len(refs) <= MaxReferences
}
