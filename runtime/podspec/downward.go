package podspec

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	resourcehelper "k8s.io/component-helpers/resource"
)

// MetadataField resolves a path to the name, namespace, UID, labels or annotations of a pod, or
// to one label or annotation. ok is false for any other path.
func MetadataField(pod *v1.Pod, path string) (value string, ok bool, err error) {
	if field, key, has := Subscript(path); has {
		switch field {
		case "metadata.annotations":
			value, err = subscripted(path, strings.ToLower(key), pod.Annotations[key])
		case "metadata.labels":
			value, err = subscripted(path, key, pod.Labels[key])
		default:
			return "", false, nil
		}
		return value, true, err
	}
	switch path {
	case "metadata.name":
		return pod.Name, true, nil
	case "metadata.namespace":
		return pod.Namespace, true, nil
	case "metadata.uid":
		return string(pod.UID), true, nil
	case "metadata.labels":
		return formatMap(pod.Labels), true, nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), true, nil
	default:
		return "", false, nil
	}
}

// Subscript splits "path['key']".
func Subscript(fieldPath string) (path, key string, ok bool) {
	inner, ok := strings.CutSuffix(fieldPath, "']")
	if !ok {
		return "", "", false
	}
	path, key, ok = strings.Cut(inner, "['")
	return path, key, ok && path != ""
}

// subscripted returns the value of a key that must be a qualified name.
func subscripted(fieldPath, key, value string) (string, error) {
	if errs := validation.IsQualifiedName(key); len(errs) != 0 {
		return "", fmt.Errorf("invalid key subscript in %s: %s", fieldPath, strings.Join(errs, ";"))
	}
	return value, nil
}

// formatMap writes lines of key="value", sorted by key.
func formatMap(m map[string]string) string {
	var b []byte
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if len(b) > 0 {
			b = append(b, '\n')
		}
		b = append(b, key...)
		b = append(b, '=')
		b = strconv.AppendQuote(b, m[key])
	}
	return string(b)
}

// ResourceField resolves a reference to a request or limit of the container of the pod: a
// quantity in units of the divisor, rounded up. A missing limit is that of the pod, else
// the allocatable amount of the node.
func ResourceField(pod *v1.Pod, c *v1.Container, ref *v1.ResourceFieldSelector,
	allocatable v1.ResourceList) (string, error) {
	list, name, _ := strings.Cut(ref.Resource, ".")
	resourceName := v1.ResourceName(name)
	huge := strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	switch resourceName {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
	default:
		if !huge {
			list = ""
		}
	}
	var amount resource.Quantity
	switch list {
	case "requests":
		amount = c.Resources.Requests[resourceName]
	case "limits":
		amount = c.Resources.Limits[resourceName]
		if amount.IsZero() && !huge { // huge pages are never overcommitted
			amount = defaultLimit(pod, resourceName, allocatable)
		}
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	value, by := amount.Value(), divisor.Value()
	if resourceName == v1.ResourceCPU {
		value, by = amount.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(by))), 10), nil
}

// defaultLimit returns the effective limit of a container without its own: the limit of
// its pod, else the allocatable amount of the node.
func defaultLimit(pod *v1.Pod, name v1.ResourceName, allocatable v1.ResourceList) resource.Quantity {
	if resourcehelper.IsPodLevelLimitsSet(pod) && resourcehelper.IsSupportedPodLevelResource(name) {
		if q := pod.Spec.Resources.Limits[name]; !q.IsZero() {
			return q
		}
	}
	return allocatable[name]
}
