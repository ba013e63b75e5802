package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// mayPreempt reports whether the pod may preempt the other one.
func mayPreempt(pod, other *v1.Pod) bool {
	if podspec.IsCritical(pod) && !podspec.IsCritical(other) {
		return true
	}
	return pod.Spec.Priority != nil && other.Spec.Priority != nil && *pod.Spec.Priority > *other.Spec.Priority
}

// shortage is how much of each resource is missing, in the unit of [Failure].Missing. All
// amounts are positive.
type shortage map[v1.ResourceName]int64

// without returns what is missing when the pods have ended.
func (s shortage) without(pods ...*v1.Pod) shortage {
	left := shortage{}
	for name, missing := range s {
		for _, pod := range pods {
			missing -= requestOf(pod, name)
		}
		if missing > 0 {
			left[name] = missing
		}
	}
	return left
}

// distance is 0 if the end of the pod makes up for the shortage, and the more the less of it
// does. Each resource counts the same.
func (s shortage) distance(pod *v1.Pod) float64 {
	sum := 0.0
	for name, missing := range s {
		if rest := missing - requestOf(pod, name); rest > 0 {
			part := float64(rest) / float64(missing)
			sum += part * part
		}
	}
	return sum
}

func (s shortage) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, s[name]))
	}
	return strings.Join(parts, ", ")
}

// Preempt returns which of the active pods have to end so that what is missing for the pod
// becomes free, and an error if there is no such set. It returns the fewest pods of the
// highest class of service that it can, and among these small ones: a guaranteed pod only
// if the end of all burstable and best effort pods is not enough, and so on. Missing are the
// failures for want of a resource.
func Preempt(pod *v1.Pod, active []*v1.Pod, missing []Failure) ([]*v1.Pod, error) {
	need := shortage{}
	for _, f := range missing {
		need[f.Resource] = f.Missing
	}
	classes := map[v1.PodQOSClass][]*v1.Pod{}
	var all []*v1.Pod
	for _, p := range active {
		if mayPreempt(pod, p) {
			class := podspec.QOSClass(p)
			classes[class] = append(classes[class], p)
			all = append(all, p)
		}
	}
	if left := need.without(all...); len(left) > 0 {
		return nil, fmt.Errorf("the end of all pods that it may preempt would leave missing: %s", left)
	}
	bestEffort, burstable, guaranteed := classes[v1.PodQOSBestEffort], classes[v1.PodQOSBurstable],
		classes[v1.PodQOSGuaranteed]
	victims := nearest(guaranteed, need.without(bestEffort...).without(burstable...))
	victims = append(victims, nearest(burstable, need.without(bestEffort...).without(victims...))...)
	return append(victims, nearest(bestEffort, need.without(victims...))...), nil
}

// nearest returns pods whose end makes up for the shortage: again and again the one that
// leaves the least missing, and among equals the one with the smallest request.
func nearest(pods []*v1.Pod, need shortage) (chosen []*v1.Pod) {
	pods = slices.Clone(pods)
	for len(need) > 0 && len(pods) > 0 {
		best := slices.MinFunc(pods, func(a, b *v1.Pod) int {
			return cmp.Or(
				cmp.Compare(need.distance(a), need.distance(b)),
				cmp.Compare(requestOf(a, v1.ResourceMemory), requestOf(b, v1.ResourceMemory)),
				cmp.Compare(requestOf(a, v1.ResourceCPU), requestOf(b, v1.ResourceCPU)),
			)
		})
		chosen = append(chosen, best)
		need = need.without(best)
		pods = slices.DeleteFunc(pods, func(p *v1.Pod) bool { return p == best })
	}
	return chosen
}
