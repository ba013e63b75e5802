package translate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// fieldValue resolves a fieldRef of an environment variable.
func fieldValue(in *Container, ref *v1.ObjectFieldSelector) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", ref.APIVersion)
	}
	pod := in.Pod.Spec
	if value, ok, err := podspec.MetadataField(pod, ref.FieldPath); ok {
		return value, err
	}
	if _, _, ok := podspec.Subscript(ref.FieldPath); ok {
		return "", fmt.Errorf("field label does not support subscript: %s", ref.FieldPath)
	}
	switch ref.FieldPath {
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
	if len(c.PodIPs) == 0 && podspec.HasHostNetwork(c.Pod.Spec) {
		return c.Pod.Host.IPs
	}
	return c.PodIPs
}

// resourceFieldValue resolves a resourceFieldRef: a quantity in units of the
// divisor, rounded up.
func resourceFieldValue(in *Container, ref *v1.ResourceFieldSelector) (string, error) {
	c := in.Spec
	if name := ref.ContainerName; name != "" && name != c.Name {
		found, kind := podspec.FindContainer(&in.Pod.Spec.Spec, name)
		if found == nil || kind == podspec.EphemeralContainer {
			return "", fmt.Errorf("container %s not found", name)
		}
		c = found
	}
	return podspec.ResourceField(in.Pod.Spec, c, ref, in.Pod.Host.Allocatable)
}
