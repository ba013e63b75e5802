package podspec

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Shortage is a resource of which a pod requests more than is free. The amounts are in
// thousandths for CPU, and otherwise in whole units.
type Shortage struct {
	Resource                  v1.ResourceName
	Requested, Used, Capacity int64
}

// Reason returns the reason of a pod that is refused for it.
func (s Shortage) Reason() string { return "OutOf" + string(s.Resource) }

// Message returns the message of such a pod.
func (s Shortage) Message() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", s.Resource,
		s.Requested, s.Used, s.Capacity)
}

// Missing returns how much is missing, or the largest number.
func (s Shortage) Missing() int64 {
	free := s.Capacity - s.Used
	if free < 0 && s.Requested > math.MaxInt64+free {
		return math.MaxInt64
	}
	return s.Requested - free
}

// PodShortage returns the shortage of room for one more pod, if there is one.
func PodShortage(active, capacity int64) (s Shortage, short bool) {
	return Shortage{v1.ResourcePods, 1, active, capacity}, active >= capacity
}

// Shortages returns the shortages of the pod beside the active pods: first those of CPU, memory
// and ephemeral storage, and then others by name. request returns the request of a pod, such as
// [Requests]. capacity returns what all pods can request; limited is false if that has no limit.
func Shortages(pod *v1.Pod, active []*v1.Pod, request func(*v1.Pod) v1.ResourceList,
	capacity func(v1.ResourceName) (q resource.Quantity, limited bool)) []Shortage {
	want := request(pod)
	names := slices.DeleteFunc(ordered(want), func(name v1.ResourceName) bool {
		_, limited := capacity(name)
		return !limited || Amount(name, want[name]) == 0
	})
	if len(names) == 0 {
		return nil
	}
	used := v1.ResourceList{}
	for _, p := range active {
		for name, q := range request(p) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	var shortages []Shortage
	for _, name := range names {
		total, _ := capacity(name)
		s := Shortage{name, Amount(name, want[name]), Amount(name, used[name]), Amount(name, total)}
		if s.Requested > s.Capacity-s.Used {
			shortages = append(shortages, s)
		}
	}
	return shortages
}

// Requests returns the request of a pod.
func Requests(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
}

// Limits returns the limits of a pod.
func Limits(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
}

// Amount returns the quantity in the unit of [Shortage], or the largest number. The requests of a pod, and
// those of several pods, can have any sum. The methods of a quantity would return a part of it.
func Amount(name v1.ResourceName, q resource.Quantity) int64 {
	unit := int64(1)
	if name == v1.ResourceCPU {
		unit = 1000
	}
	switch {
	case q.CmpInt64(math.MaxInt64/unit) > 0:
		return math.MaxInt64
	case name == v1.ResourceCPU:
		return q.MilliValue()
	default:
		return q.Value()
	}
}

// Remaining returns the amounts of the capacity without those of the lists, at least 0.
func Remaining(capacity v1.ResourceList, reserved ...v1.ResourceList) v1.ResourceList {
	out := make(v1.ResourceList, len(capacity))
	for name, total := range capacity {
		left := total.DeepCopy()
		for _, list := range reserved {
			if r, ok := list[name]; ok {
				left.Sub(r)
			}
		}
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, total.Format)
		}
		out[name] = left
	}
	return out
}

// ordered returns the names of the resources: first those that each node has, as kubelet
// reports them, then the others by name.
func ordered(list v1.ResourceList) []v1.ResourceName {
	rank := map[v1.ResourceName]int{v1.ResourceCPU: 1, v1.ResourceMemory: 2, v1.ResourceEphemeralStorage: 3}
	names := make([]v1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b v1.ResourceName) int {
		return cmp.Or(cmp.Compare(cmp.Or(rank[a], 4), cmp.Or(rank[b], 4)), cmp.Compare(a, b))
	})
	return names
}

// IsExtendedResource reports whether the resource is outside of the domain of Kubernetes.
func IsExtendedResource(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix)
}
