package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// StopOrder returns the instances in groups, in the order in which they are to be
// stopped. The instances of a group are stopped at the same time. A group is stopped when
// all groups before it have ended, or when the grace period, which is that of the whole
// pod, is over.
//
//   - The first group has the main containers, init containers that have not ended, and
//     containers that are not in the spec.
//   - Then each sidecar is a group, in the reverse order of the spec.
//   - Ephemeral containers are in the last group, so that no group waits for a debugging
//     shell.
//
// No group is empty. If pod is nil, there is one group.
func StopOrder(pod *v1.Pod, running []runtime.ContainerStatus) [][]runtime.ContainerStatus {
	if pod == nil {
		pod = &v1.Pod{}
	}
	inits := pod.Spec.InitContainers
	// turns[0] is the first group, turns[len(inits)-i] that of sidecar i.
	turns := make([][]runtime.ContainerStatus, len(inits)+1)
	var ephemeral []runtime.ContainerStatus
	for _, n := range running {
		turn := 0
		for i := range inits {
			if inits[i].Name == n.Name && podspec.IsSidecar(&inits[i]) {
				turn = len(inits) - i
			}
		}
		if _, kind := podspec.FindContainer(&pod.Spec, n.Name); kind == podspec.EphemeralContainer {
			ephemeral = append(ephemeral, n)
			continue
		}
		turns[turn] = append(turns[turn], n)
	}
	var groups [][]runtime.ContainerStatus
	for _, group := range turns {
		if len(group) > 0 {
			groups = append(groups, group)
		}
	}
	switch {
	case len(ephemeral) == 0:
	case len(groups) == 0:
		groups = append(groups, ephemeral)
	default:
		last := &groups[len(groups)-1]
		*last = append(*last, ephemeral...)
	}
	return groups
}
