package node

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// evictionResources are the resources that a signal of eviction reserves, as in kubelet. It
// is never changed.
var evictionResources = map[string]v1.ResourceName{
	"memory.available": v1.ResourceMemory,
	"nodefs.available": v1.ResourceEphemeralStorage,
}

// Allocatable returns the part of the capacity that pods can have: the capacity without the reserved
// amounts and, as with kubelet, without the thresholds of hard eviction: below them pods are
// evicted. Thresholds are in kubelet's form: "memory.available" with a quantity or a
// percentage, such as "100Mi" or "10%"; signals other than memory.available and
// nodefs.available reserve nothing. Memory in huge pages is not allocatable as memory. Nothing
// is below 0.
//
// The error names the threshold that cannot be understood.
func Allocatable(capacity, reserved v1.ResourceList, evictionHard map[string]string) (v1.ResourceList, error) {
	sum := maps.Clone(reserved)
	if sum == nil {
		sum = v1.ResourceList{}
	}
	for signal, text := range evictionHard {
		threshold, err := parseThreshold(text)
		if err != nil {
			return nil, fmt.Errorf("evictionHard %s: %w", signal, err)
		}
		if name, ok := evictionResources[signal]; ok {
			total := sum[name].DeepCopy()
			total.Add(threshold.of(capacity[name]))
			sum[name] = total
		}
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

// threshold is a quantity, or a part of the capacity.
type threshold struct {
	quantity resource.Quantity
	// part is a part of the capacity if it is above 0. It has the precision of kubelet's, so that the
	// result is the same to the byte.
	part float32
}

func (t threshold) of(capacity resource.Quantity) resource.Quantity {
	if t.part > 0 {
		return *resource.NewQuantity(int64(float64(capacity.Value())*float64(t.part)), resource.BinarySI)
	}
	return t.quantity
}

// parseThreshold follows kubelet, which ignores 0% and 100%.
func parseThreshold(text string) (t threshold, err error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseFloat(percent, 32)
		if err != nil || n != n || n < 0 || n > 100 {
			return t, fmt.Errorf("%q: must be between 0%% and 100%%", text)
		}
		if text != "100%" {
			t.part = float32(n) / 100
		}
		return t, nil
	}
	if t.quantity, err = resource.ParseQuantity(text); err != nil {
		return t, fmt.Errorf("%q: %w", text, err)
	}
	if t.quantity.Sign() <= 0 {
		return t, fmt.Errorf("%q: must be above 0", text)
	}
	return t, nil
}

func isHugePage(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
