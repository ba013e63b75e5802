package podspec

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// WithResources returns the pod with the resources of another version of it, or the pod itself
// if these are the same. A container that only one of the two versions has keeps its own. Size limits of volumes in
// memory are resources, too (KEP-6030).
func WithResources(pod, other *v1.Pod) *v1.Pod {
	containers, initContainers := replace(pod.Spec.Containers, other.Spec.Containers),
		replace(pod.Spec.InitContainers, other.Spec.InitContainers)
	volumes := replaceLimits(pod.Spec.Volumes, other.Spec.Volumes)
	if containers == nil && initContainers == nil && volumes == nil && equality.Semantic.DeepEqual(pod.Spec.Resources,
		other.Spec.Resources) {
		return pod
	}
	out := *pod
	out.Spec.Resources = other.Spec.Resources
	if containers != nil {
		out.Spec.Containers = containers
	}
	if initContainers != nil {
		out.Spec.InitContainers = initContainers
	}
	if volumes != nil {
		out.Spec.Volumes = volumes
	}
	return &out
}

// MemoryVolumeLimit returns the size limit of an emptyDir in memory; nil for another volume and if there is none.
func MemoryVolumeLimit(v *v1.Volume) *resource.Quantity {
	if v.EmptyDir == nil || v.EmptyDir.Medium != v1.StorageMediumMemory || v.EmptyDir.SizeLimit == nil ||
		v.EmptyDir.SizeLimit.Sign() <= 0 {
		return nil
	}
	return v.EmptyDir.SizeLimit
}

// replaceLimits returns a copy of the list with the size limits of the volumes in memory of the same names in others.
// It returns nil if none differs.
func replaceLimits(list, others []v1.Volume) (replaced []v1.Volume) {
	for i := range list {
		limit := MemoryVolumeLimit(&list[i])
		if limit == nil {
			continue
		}
		j := slices.IndexFunc(others, func(v v1.Volume) bool { return v.Name == list[i].Name })
		if j < 0 {
			continue
		}
		other := MemoryVolumeLimit(&others[j])
		if other == nil || limit.Cmp(*other) == 0 {
			continue
		}
		if replaced == nil {
			replaced = slices.Clone(list)
		}
		replaced[i].EmptyDir = list[i].EmptyDir.DeepCopy()
		replaced[i].EmptyDir.SizeLimit = other
	}
	return replaced
}

// replace returns a copy of the list with the resources of the containers of the same names in
// others. It returns nil if no resources differ.
func replace(list, others []v1.Container) (replaced []v1.Container) {
	for i := range list {
		j := slices.IndexFunc(others, func(c v1.Container) bool { return c.Name == list[i].Name })
		if j < 0 || equality.Semantic.DeepEqual(list[i].Resources, others[j].Resources) {
			continue
		}
		if replaced == nil {
			replaced = slices.Clone(list)
		}
		replaced[i].Resources = others[j].Resources
	}
	return replaced
}

// SameResources reports whether two versions of a pod have the same resources.
func SameResources(a, b *v1.Pod) bool { return a == b || WithResources(a, b) == a }

// LimitOf returns the limit that holds for a container: its own, or else that of its pod as a whole (KEP-2837). It is 0
// if there is none.
func LimitOf(pod *v1.Pod, c *v1.Container, name v1.ResourceName) resource.Quantity {
	limit := c.Resources.Limits[name]
	if limit.IsZero() && pod.Spec.Resources != nil {
		limit = pod.Spec.Resources.Limits[name]
	}
	return limit
}

// HeldByPod returns the resources of the pod as a whole, with the requests and limits of CPU and memory that it holds
// in place of those of its spec. What it holds includes its overhead. It returns nil if the pod has none in its spec.
// An amount that it does not hold is left out.
func HeldByPod(pod *v1.Pod, requests, limits v1.ResourceList) *v1.ResourceRequirements {
	out := pod.Spec.Resources.DeepCopy()
	if out == nil {
		return nil
	}
	replace := func(list, held v1.ResourceList) {
		held = Remaining(held, pod.Spec.Overhead)
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			if _, given := list[name]; !given {
				continue
			}
			if q, ok := held[name]; ok {
				list[name] = q
			} else {
				delete(list, name)
			}
		}
	}
	replace(out.Requests, requests)
	replace(out.Limits, limits)
	return out
}

// ReportedCondition returns the condition of the type in the status of the pod, zero if there is none.
func ReportedCondition(pod *v1.Pod, t v1.PodConditionType) v1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return v1.PodCondition{}
}

// ResizeMessage returns the message of an event about a resize, in the form of kubelet: the resources
// of the containers, the generation of the resize and its error, if there is one, as JSON.
func ResizeMessage(prefix string, pod *v1.Pod, generation int64, problem string) string {
	type container struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources"`
	}
	resources := func(list []v1.Container) (out []container) {
		for i := range list {
			out = append(out, container{list[i].Name, list[i].Resources})
		}
		return out
	}
	raw, err := json.Marshal(struct {
		InitContainers []container `json:"initContainers,omitempty"`
		Containers     []container `json:"containers,omitempty"`
		Generation     int64       `json:"generation"`
		Error          string      `json:"error,omitempty"`
	}{resources(pod.Spec.InitContainers), resources(pod.Spec.Containers), generation, problem})
	if err != nil {
		return prefix
	}
	return fmt.Sprintf("%s: %s", prefix, raw)
}
