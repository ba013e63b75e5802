// Package podsets has sets of UIDs of pods, for parts that keep something for each pod until it
// ends.
package podsets

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Ended returns the pods that have ended or are gone, of a change of the pods of the API server.
func Ended(changed, removed []*v1.Pod) sets.Set[types.UID] {
	ended := sets.New[types.UID]()
	for _, pod := range removed {
		ended.Insert(pod.UID)
	}
	for _, pod := range changed {
		if podspec.IsPhaseTerminal(pod.Status.Phase) {
			ended.Insert(pod.UID)
		}
	}
	return ended
}

// Active returns the pods that have not ended.
func Active(pods []*v1.Pod) sets.Set[types.UID] {
	active := make(sets.Set[types.UID], len(pods))
	for _, pod := range pods {
		if !podspec.IsPhaseTerminal(pod.Status.Phase) {
			active.Insert(pod.UID)
		}
	}
	return active
}
