package dra

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reference is a claim that a pod uses.
type reference struct {
	// name is that of the ResourceClaim.
	name string
	// owned means that the claim was made for this pod, of a template.
	owned bool
}

// hasClaims reports whether the pod uses claims.
func hasClaims(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// references returns the claims that the pod uses, without those that were intentionally not made. It fails if a claim
// of the spec is not known yet.
func references(pod *v1.Pod) ([]reference, error) {
	var list []reference
	for i := range pod.Spec.ResourceClaims {
		r, err := resolve(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if r.name != "" && !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	if e := pod.Status.ExtendedResourceClaimStatus; e != nil {
		list = append(list, reference{name: e.ResourceClaimName})
	}
	return list, nil
}

// resolve returns the claim for an entry of the spec; that without a name if none is needed.
func resolve(pod *v1.Pod, claim *v1.PodResourceClaim) (reference, error) {
	switch {
	case claim.ResourceClaimName != nil:
		return reference{name: *claim.ResourceClaimName}, nil
	case claim.ResourceClaimTemplateName == nil:
		return reference{}, fmt.Errorf("resource claim %q of the pod names neither a ResourceClaim nor a template",
			claim.Name)
	}
	for _, s := range pod.Status.ResourceClaimStatuses {
		switch {
		case s.Name != claim.Name:
		case s.ResourceClaimName == nil:
			return reference{}, nil
		default:
			return reference{name: *s.ResourceClaimName, owned: true}, nil
		}
	}
	return reference{}, fmt.Errorf("the ResourceClaim for %q, from template %q, is not created yet", claim.Name,
		*claim.ResourceClaimTemplateName)
}

// check reports why the pod must not use the claim.
func check(pod *v1.Pod, r reference, claim *resourceapi.ResourceClaim) error {
	switch {
	case claim.Namespace != pod.Namespace || claim.Name != r.name:
		return fmt.Errorf("asked for ResourceClaim %s, and received %s/%s", r.name, claim.Namespace, claim.Name)
	case r.owned && !metav1.IsControlledBy(claim, pod):
		return fmt.Errorf("ResourceClaim %s was not created for this pod: the pod does not own it", claim.Name)
	case claim.Status.Allocation == nil:
		return fmt.Errorf("ResourceClaim %s is not allocated", claim.Name)
	case !slices.ContainsFunc(claim.Status.ReservedFor,
		func(c resourceapi.ResourceClaimConsumerReference) bool { return c.UID == pod.UID }):
		return fmt.Errorf("this pod (%s) is not allowed to use ResourceClaim %s (%s): the claim is not reserved for it",
			pod.UID, claim.Name, claim.UID)
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == "" {
			return fmt.Errorf("ResourceClaim %s has a device without a driver", claim.Name)
		}
	}
	return nil
}

// use is a claim that a container uses.
type use struct {
	// name is that of the ResourceClaim.
	name string
	// request is the one that the container is limited to. If empty, it uses all devices of the claim.
	request string
	// resource is the name in the status of the container, "claim:gpu/request"; empty for an extended resource.
	resource v1.ResourceName
}

// uses returns the claims that the container uses, in the order of its spec.
func uses(pod *v1.Pod, container *v1.Container) ([]use, error) {
	var list []use
	for _, c := range container.Resources.Claims {
		i := slices.IndexFunc(pod.Spec.ResourceClaims, func(p v1.PodResourceClaim) bool { return p.Name == c.Name })
		if i < 0 {
			return nil, fmt.Errorf("container %s uses the resource claim %q, which the pod does not have",
				container.Name, c.Name)
		}
		r, err := resolve(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if r.name == "" {
			continue
		}
		resource := "claim:" + c.Name
		if c.Request != "" {
			resource += "/" + c.Request
		}
		list = append(list, use{r.name, c.Request, v1.ResourceName(resource)})
	}
	if e := pod.Status.ExtendedResourceClaimStatus; e != nil {
		for _, m := range e.RequestMappings {
			q, requested := container.Resources.Requests[v1.ResourceName(m.ResourceName)]
			if m.ContainerName != container.Name || !requested || q.IsZero() {
				continue
			}
			if m.RequestName == "" {
				return nil, errors.New("an extended resource of container " + container.Name +
					" names no request of its claim")
			}
			list = append(list, use{name: e.ResourceClaimName, request: m.RequestName})
		}
	}
	return list, nil
}

// serves reports whether a device is for the request. A subrequest, "gpu/large", is of its request, "gpu".
func serves(d Device, request string) bool {
	if request == "" || len(d.Requests) == 0 {
		return true
	}
	base, _, _ := strings.Cut(request, "/")
	return slices.ContainsFunc(d.Requests, func(of string) bool {
		ofBase, _, _ := strings.Cut(of, "/")
		return of == request || ofBase == base
	})
}
