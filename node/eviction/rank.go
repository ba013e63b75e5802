package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Rank returns the pods that may be evicted for the signal, the first victim first. It does not change its input.
//
// For memory and disks, pods come first that use more than they request, then those of the lowest priority, then those
// that use most beyond their request. For processes, it is the priority, then the number of processes. Static pods,
// mirror pods and pods of a system's priority are not in the result, nor are pods that end already, and pods whose end
// would free nothing; see [Rules].EvictStatic. Pods of unknown usage come last.
func Rank(s Signal, rules Rules, pods []Pod) []Pod {
	list := make([]ranked, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		if p.Pod == nil || p.Ending || !rules.evictable(p.Pod) {
			continue
		}
		r := ranked{Pod: p, priority: priority(p.Pod)}
		if r.used, r.known = p.Usage.of(s, rules.Layout); r.known && r.used == 0 {
			continue
		}
		r.over = r.used
		if !r.known {
			list = append(list, r)
			continue
		}
		if name := s.Resource(); name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage {
			r.over -= podspec.Amount(name, podspec.Requests(p.Pod)[name])
		}
		r.exceeds = r.over > 0 && s.Resource() != resourcePIDs
		list = append(list, r)
	}
	slices.SortStableFunc(list, func(a, b ranked) int {
		return cmp.Or(
			compareBool(a.known, b.known),
			compareBool(a.exceeds, b.exceeds),
			cmp.Compare(a.priority, b.priority),
			cmp.Compare(b.over, a.over),
			cmp.Compare(a.Pod.Pod.UID, b.Pod.Pod.UID), // so that the order does not depend on that of the input
		)
	})
	out := make([]Pod, len(list))
	for i := range list {
		out[i] = *list[i].Pod
	}
	return out
}

// evictable reports whether the pod may be evicted.
func (r *Rules) evictable(pod *v1.Pod) bool {
	if !r.EvictStatic || !podspec.IsStatic(pod) {
		return !podspec.IsCritical(pod)
	}
	class := pod.Spec.PriorityClassName
	return !podspec.IsMirror(pod) && !podspec.HasCriticalPriority(pod) && class != "system-node-critical" &&
		class != "system-cluster-critical"
}

type ranked struct {
	*Pod
	known, exceeds bool
	used, over     int64
	priority       int32
}

func priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// compareBool puts true before false.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// message returns kubelet's message of an eviction, and the annotations of its event.
func message(t Threshold, r Reading, victim *Pod) (string, map[string]string) {
	name := t.Signal.Resource()
	annotations := map[string]string{"starved_resource": string(name)}
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %s. Threshold quantity: %s, available: %s. ", name,
		t.Value.text(r.Capacity), amountText(name, r.Available))
	spec := &victim.Pod.Spec
	if name == v1.ResourceMemory && spec.Resources != nil && victim.Usage.Memory != nil {
		if request, ok := spec.Resources.Requests[name]; ok {
			used := amountText(name, *victim.Usage.Memory)
			fmt.Fprintf(&b, "Pod %s was using %s, request is %s, has larger consumption of %s. ", victim.Pod.Name, used,
				request.String(), name)
			annotations["offending_pod"], annotations["offending_pod_usage"] = victim.Pod.Name, used
		}
	}
	var containers, usages []string
	for i := range victim.Usage.Containers {
		u := &victim.Usage.Containers[i]
		c, kind := podspec.FindContainer(spec, u.Name)
		if c == nil || kind == podspec.EphemeralContainer {
			continue
		}
		used := u.Memory
		if name == v1.ResourceEphemeralStorage {
			used = u.Disk
		}
		if used == nil || name != v1.ResourceMemory && name != v1.ResourceEphemeralStorage {
			continue
		}
		request := c.Resources.Requests[name]
		if q := resource.NewQuantity(*used, resource.BinarySI); q.Cmp(request) > 0 {
			fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %s. ", c.Name,
				q.String(), request.String(), name)
			containers, usages = append(containers, c.Name), append(usages, q.String())
		}
	}
	annotations["offending_containers"], annotations["offending_containers_usage"] = strings.Join(containers, ","),
		strings.Join(usages, ",")
	return b.String(), annotations
}
