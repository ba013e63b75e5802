package podvalidation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// resources checks the resources of a container.
func (c *checker) resources(path *field.Path, r *v1.ResourceRequirements) {
	c.requirements(path, r, containerResource)
	for i, claim := range r.Claims {
		if claim.Name == "" {
			c.required(path.Child("claims").Index(i), "")
		} else if !c.claims[claim.Name] {
			c.add(field.NotFound(path.Child("claims").Index(i), claim.Name))
		}
	}
}

// podResources checks pod-level resources (KEP-2837).
func (c *checker) podResources(path *field.Path) {
	r := c.spec.Resources
	if r == nil {
		return
	}
	if isWindows(c.spec) {
		c.forbidden(path, "may not be set for a windows pod")
		return
	}
	if r.Claims != nil {
		c.forbidden(path.Child("claims"), "claims may not be set for Resources at pod-level")
	}
	c.requirements(path, r, podResource)
	requests := resourcehelper.AggregateContainerRequests(c.pod, resourcehelper.PodResourcesOptions{})
	for _, name := range sortedNames(requests) {
		sum := requests[name]
		if q, ok := r.Requests[name]; ok && sum.Cmp(q) > 0 {
			c.invalid(path.Child("requests").Key(string(name)), q.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", sum.String()))
		}
	}
	limits := resourcehelper.AggregateContainerLimits(c.pod, resourcehelper.PodResourcesOptions{})
	for _, name := range sortedNames(limits) {
		sum := limits[name]
		if q, ok := r.Limits[name]; ok && isHugePages(name) && sum.Cmp(q) > 0 {
			c.invalid(path.Child("limits").Key(string(name)), q.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container limits of %s", sum.String()))
		}
	}
	for i := range c.spec.Containers {
		own := c.spec.Containers[i].Resources.Limits
		for _, name := range sortedNames(own) {
			limit := own[name]
			if q, ok := r.Limits[name]; ok && limit.Cmp(q) > 0 {
				c.invalid(path.Child("containers").Index(i).Key(string(name)).Child("limits"), limit.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", q.String()))
			}
		}
	}
}

func sortedNames(list v1.ResourceList) []v1.ResourceName { return slices.Sorted(maps.Keys(list)) }

// requirements checks limits and requests, and that no request exceeds its limit.
func (c *checker) requirements(path *field.Path, r *v1.ResourceRequirements, wrongName nameCheck) {
	c.resourceList(path.Child("limits"), r.Limits, wrongName)
	c.resourceList(path.Child("requests"), r.Requests, wrongName)
	compute, huge := false, false
	note := func(name v1.ResourceName) {
		compute = compute || name == v1.ResourceCPU || name == v1.ResourceMemory
		huge = huge || isHugePages(name)
	}
	for name := range r.Limits {
		note(name)
	}
	for _, name := range sortedNames(r.Requests) {
		note(name)
		request := r.Requests[name]
		limit, limited := r.Limits[name]
		switch {
		case !limited && !mayOvercommit(name):
			c.required(path.Child("limits"), "Limit must be set for non overcommitable resources")
		case !limited:
		case !mayOvercommit(name) && request.Cmp(limit) != 0:
			c.invalid(path.Child("requests"), request.String(), fmt.Sprintf("must be equal to %s limit of %s",
				name, limit.String()))
		case request.Cmp(limit) > 0:
			c.invalid(path.Child("requests"), request.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
		}
	}
	if huge && !compute {
		c.forbidden(path, "HugePages require cpu or memory")
	}
}

// nameCheck returns the error for the name of a resource at the path, or nil.
type nameCheck func(*field.Path, v1.ResourceName) *field.Error

// resourceList checks names and quantities.
func (c *checker) resourceList(path *field.Path, list v1.ResourceList, wrongName nameCheck) {
	for _, name := range sortedNames(list) {
		path, q := path.Key(string(name)), list[name]
		if msgs := validation.IsQualifiedName(string(name)); len(msgs) > 0 {
			c.invalid(path, name, msgs...)
		} else if err := wrongName(path, name); err != nil {
			c.add(err)
		}
		if q.Sign() < 0 {
			c.invalid(path, q.String(), "must be greater than or equal to 0")
		}
		if !isNative(name) && q.MilliValue()%1000 != 0 {
			c.invalid(path, q.String(), "must be an integer")
		}
		if isHugePages(name) && !wholePages(name, q) {
			c.invalid(path, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name))
		}
	}
}

// wholePages reports whether q is a multiple of the page size in the name.
func wholePages(name v1.ResourceName, q resource.Quantity) bool {
	size, err := podspec.ParseQuantity(strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))
	if err != nil || size.Value() <= 0 || size.MilliValue()%1000 != 0 {
		return false
	}
	return q.Value()%size.Value() == 0
}

// containerResource checks the name of a container's resource.
func containerResource(path *field.Path, name v1.ResourceName) *field.Error {
	const quotaPrefix = "requests."
	switch {
	case name == v1.ResourceCPU, name == v1.ResourceMemory, name == v1.ResourceEphemeralStorage, isHugePages(name):
		return nil
	case !strings.Contains(string(name), "/"):
		return field.Invalid(path, name, "must be a standard resource for containers")
	case isNative(name):
		return nil
	case strings.HasPrefix(string(name), quotaPrefix), len(validation.IsQualifiedName(quotaPrefix+string(name))) > 0:
		return field.Invalid(path, name, "doesn't follow extended resource name standard")
	}
	return nil
}

// podResource checks the name of a pod's resource.
func podResource(path *field.Path, name v1.ResourceName) *field.Error {
	if resourcehelper.IsSupportedPodLevelResource(name) {
		return nil
	}
	return field.NotSupported(path, name, sets.List(resourcehelper.SupportedPodLevelResources()))
}
