package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// StopOrder returns the given instances in the groups in which they are to be
// stopped. A group may be stopped side by side; it has its turn when all groups
// before it have ended or the grace period, which is one for the whole pod, is over.
//
//   - First come the main containers, with init containers that have not ended yet
//     and whatever the spec does not name.
//   - Then each sidecar by itself, the one started last first.
//   - Ephemeral containers are in the last group, whichever it is: nothing has to
//     wait for a debugging shell.
//
// Groups are never empty. Without a spec there is one group.
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
			if inits[i].Name == n.Name && runtime.IsSidecar(&inits[i]) {
				turn = len(inits) - i
			}
		}
		if _, kind := runtime.FindContainer(&pod.Spec, n.Name); kind == runtime.EphemeralContainer {
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
