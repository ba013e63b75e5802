package translate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// fieldValue resolves a fieldRef of an environment variable.
func fieldValue(in *Container, ref *v1.ObjectFieldSelector) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", ref.APIVersion)
	}
	pod := in.Pod.Spec
	if path, key, ok := subscript(ref.FieldPath); ok {
		switch path {
		case "metadata.annotations":
			return subscripted(ref.FieldPath, strings.ToLower(key), pod.Annotations[key])
		case "metadata.labels":
			return subscripted(ref.FieldPath, key, pod.Labels[key])
		default:
			return "", fmt.Errorf("field label does not support subscript: %s", ref.FieldPath)
		}
	}
	switch ref.FieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName", "spec.host": // spec.host is the old name
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		ips := in.Pod.Host.IPs
		if len(ips) == 0 {
			return "", errors.New("the node has no IP address")
		}
		if ref.FieldPath == "status.hostIP" {
			return ips[0], nil
		}
		return strings.Join(ips, ","), nil
	case "status.podIP":
		if ips := sortedPodIPs(in); len(ips) > 0 {
			return ips[0], nil
		}
		return "", nil
	case "status.podIPs":
		return strings.Join(sortedPodIPs(in), ","), nil
	default:
		return "", fmt.Errorf("field label not supported: %s", ref.FieldPath)
	}
}

// subscript splits "path['key']".
func subscript(fieldPath string) (path, key string, ok bool) {
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

// sortedPodIPs returns at most one address of each family, the node's primary family
// first.
func sortedPodIPs(in *Container) []string {
	hostIPs := in.Pod.Host.IPs
	primary6 := len(hostIPs) > 0 && isIPv6(hostIPs[0])
	var first, second string
	for _, s := range in.podIPs() {
		addr, err := netip.ParseAddr(s)
		if err != nil {
			continue
		}
		of := &second
		if isIPv6(s) == primary6 {
			of = &first
		}
		if *of == "" {
			*of = addr.Unmap().String() // the canonical form
		}
	}
	return slices.DeleteFunc([]string{first, second}, func(s string) bool { return s == "" })
}

func isIPv6(s string) bool {
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Is6() && !addr.Is4In6()
}

// podIPs returns the addresses of the pod; with the host's network, those of the node.
func (c *Container) podIPs() []string {
	if len(c.PodIPs) == 0 && runtime.HasHostNetwork(c.Pod.Spec) {
		return c.Pod.Host.IPs
	}
	return c.PodIPs
}

// resourceFieldValue resolves a resourceFieldRef: a quantity in units of the
// divisor, rounded up.
func resourceFieldValue(in *Container, ref *v1.ResourceFieldSelector) (string, error) {
	c := in.Spec
	if name := ref.ContainerName; name != "" && name != c.Name {
		found, kind := runtime.FindContainer(&in.Pod.Spec.Spec, name)
		if found == nil || kind == runtime.EphemeralContainer {
			return "", fmt.Errorf("container %s not found", name)
		}
		c = found
	}
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
			amount = defaultLimit(in.Pod, resourceName)
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
func defaultLimit(in *Pod, name v1.ResourceName) resource.Quantity {
	if resourcehelper.IsPodLevelLimitsSet(in.Spec) && resourcehelper.IsSupportedPodLevelResource(name) {
		if q := in.Spec.Spec.Resources.Limits[name]; !q.IsZero() {
			return q
		}
	}
	return in.Host.Allocatable[name]
}
