package node

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/node/eviction"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Allocatable returns the part of the capacity that pods can have: the capacity without the reserved
// amounts and, as with kubelet, without the thresholds of hard eviction: below them pods are
// evicted. Thresholds are in kubelet's form: "memory.available" with a quantity or a
// percentage, such as "100Mi" or "10%"; signals other than memory.available and
// nodefs.available reserve nothing. Memory in huge pages is not allocatable as memory. Nothing
// is below 0.
//
// The error names the threshold that cannot be understood, see [eviction.Parse].
func Allocatable(capacity, reserved v1.ResourceList, evictionHard map[string]string) (v1.ResourceList, error) {
	thresholds, err := eviction.Parse(eviction.Config{Hard: evictionHard})
	if err != nil {
		return nil, err
	}
	sum := maps.Clone(reserved)
	if sum == nil {
		sum = v1.ResourceList{}
	}
	for _, t := range thresholds {
		name := t.Signal.Resource()
		if t.Signal != eviction.MemoryAvailable && t.Signal != eviction.NodeFsAvailable {
			continue
		}
		total, whole := sum[name].DeepCopy(), capacity[name]
		if t.Value.Part == 0 {
			total.Add(t.Value.Quantity)
		} else {
			total.Add(*resource.NewQuantity(t.Value.Of(whole.Value()), resource.BinarySI))
		}
		sum[name] = total
	}
	return subtract(capacity, sum), nil
}

// subtract returns the capacity without the reserved amounts, and the memory without huge pages.
func subtract(capacity, reserved v1.ResourceList) v1.ResourceList {
	var huge resource.Quantity
	for page, size := range capacity {
		if isHugePage(page) {
			huge.Add(size)
		}
	}
	return podspec.Remaining(capacity, reserved, v1.ResourceList{v1.ResourceMemory: huge})
}

func isHugePage(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
