package podvalidation

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// SetDefaults sets the defaults of a pod in place, as the API server (1.37) does, so that
// a pod from a manifest is as it would be in a cluster. It ignores volume types that need
// an API server or are no longer served.
func SetDefaults(pod *v1.Pod) {
	SetContainerDefaults(pod)
	if r := pod.Spec.Resources; r != nil && len(r.Limits)+len(r.Requests) > 0 {
		setHugePageLimits(pod, r)
		setRequests(pod, r)
		setLimits(pod, r)
	}
}

// SetContainerDefaults is SetDefaults without pod-level resources.
func SetContainerDefaults(pod *v1.Pod) {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.VolumeSource == (v1.VolumeSource{}) {
			v.EmptyDir = &v1.EmptyDirVolumeSource{}
		}
	}
	setDefaults(pod)
}

// setDefaults is SetContainerDefaults for a pod whose volumes have a type, or one that is not known here.
func setDefaults(pod *v1.Pod) {
	spec := &pod.Spec
	defaultTo(&spec.DNSPolicy, v1.DNSClusterFirst)
	defaultTo(&spec.RestartPolicy, v1.RestartPolicyAlways)
	defaultTo(&spec.SchedulerName, v1.DefaultSchedulerName)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &v1.PodSecurityContext{}
	}
	defaultPtr(&spec.TerminationGracePeriodSeconds, podspec.DefaultGracePeriod)
	if *spec.TerminationGracePeriodSeconds < 0 {
		// Older API servers did not validate this field.
		shortest := int64(1)
		spec.TerminationGracePeriodSeconds = &shortest
	}
	defaultPtr(&spec.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	// These are two names of one field.
	defaultTo(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName

	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for kind, c := range podspec.Containers(spec) {
		defaultContainer(c)
		if kind == podspec.EphemeralContainer {
			continue
		}
		defaultRequests(&c.Resources)
		if spec.HostNetwork {
			for i := range c.Ports {
				defaultTo(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
			}
		}
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
}

func defaultTo[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func defaultPtr[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func defaultContainer(c *v1.Container) {
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = pullPolicy(c.Image)
	}
	defaultTo(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	defaultTo(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		defaultTo(&c.Ports[i].Protocol, v1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			if from.FieldRef != nil {
				defaultTo(&from.FieldRef.APIVersion, "v1")
			}
			if from.FileKeyRef != nil {
				defaultPtr(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for _, p := range [...]*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil {
			defaultProbe(p)
		}
	}
	if c.Lifecycle != nil {
		for _, h := range [...]*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil && h.HTTPGet != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

// pullPolicy returns the default pull policy: Always for images whose tag is latest,
// given or implied, and IfNotPresent for other images and for invalid names.
func pullPolicy(image string) v1.PullPolicy {
	ref, err := text.ParseImageRef(image)
	if err == nil && (ref.Tag == "latest" || ref.Tag == "" && ref.Digest == "") {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

func defaultProbe(p *v1.Probe) {
	defaultTo(&p.TimeoutSeconds, 1)
	defaultTo(&p.PeriodSeconds, 10)
	defaultTo(&p.SuccessThreshold, 1)
	defaultTo(&p.FailureThreshold, 3)
	if p.HTTPGet != nil {
		defaultHTTPGet(p.HTTPGet)
	}
	if p.GRPC != nil {
		defaultPtr(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *v1.HTTPGetAction) {
	defaultTo(&h.Path, "/")
	defaultTo(&h.Scheme, v1.URISchemeHTTP)
}

func defaultVolume(v *v1.Volume) {
	switch {
	case v.HostPath != nil:
		defaultPtr(&v.HostPath.Type, v1.HostPathUnset)
	case v.Image != nil:
		if v.Image.PullPolicy == "" {
			v.Image.PullPolicy = pullPolicy(v.Image.Reference)
		}
	case v.Secret != nil:
		defaultPtr(&v.Secret.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	case v.ConfigMap != nil:
		defaultPtr(&v.ConfigMap.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	case v.DownwardAPI != nil:
		defaultPtr(&v.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownward(v.DownwardAPI.Items)
	case v.Projected != nil:
		defaultPtr(&v.Projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			if s.DownwardAPI != nil {
				defaultDownward(s.DownwardAPI.Items)
			}
			if s.ServiceAccountToken != nil {
				const hour = int64(60 * 60)
				defaultPtr(&s.ServiceAccountToken.ExpirationSeconds, hour)
			}
		}
	case v.ISCSI != nil:
		defaultTo(&v.ISCSI.ISCSIInterface, "default")
	}
}

func defaultDownward(items []v1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			defaultTo(&items[i].FieldRef.APIVersion, "v1")
		}
	}
}

// roundUp rounds quantities up to thousandths, the precision of the API.
func roundUp(list v1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q // also if it was exact: kubelet's UIDs depend on the scale
	}
}

// defaultRequests sets missing requests to the limits.
func defaultRequests(r *v1.ResourceRequirements) {
	if r.Limits != nil && r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	for name, limit := range r.Limits {
		if _, given := r.Requests[name]; !given {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// SetResourceDefaults sets the defaults of pod-level resources (KEP-2837) from the
// resources of the containers, as the API server and kubelet up to 1.36 do. The containers must have their defaults.
func SetResourceDefaults(pod *v1.Pod) {
	r := pod.Spec.Resources
	if r == nil {
		return
	}
	if len(r.Limits) > 0 || len(r.Requests) > 0 {
		setHugePageLimits(pod, r)
	}
	if len(r.Limits) > 0 {
		setRequests(pod, r)
	}
}

// setHugePageLimits sets the limits of huge pages of the pod that has none to those of its containers.
func setHugePageLimits(pod *v1.Pod, r *v1.ResourceRequirements) {
	for name, limit := range resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{}) {
		_, requested := r.Requests[name]
		if isHugePages(name) && !requested {
			setLimit(r, name, limit)
		}
	}
}

// setLimit sets the limit of a resource that has none.
func setLimit(r *v1.ResourceRequirements, name v1.ResourceName, q resource.Quantity) {
	if _, limited := r.Limits[name]; limited || !resourcehelper.IsSupportedPodLevelResource(name) {
		return
	}
	if r.Limits == nil {
		r.Limits = v1.ResourceList{}
	}
	r.Limits[name] = q.DeepCopy()
}

// setRequests sets the requests that are missing to those of the containers, or else to the limits.
func setRequests(pod *v1.Pod, r *v1.ResourceRequirements) {
	requests := r.Requests
	if requests == nil {
		requests = v1.ResourceList{}
	}
	request := func(name v1.ResourceName, q resource.Quantity) {
		if _, given := requests[name]; !given && resourcehelper.IsSupportedPodLevelResource(name) {
			requests[name] = q.DeepCopy()
		}
	}
	for name, q := range resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if mayOvercommit(name) {
			request(name, q)
		}
	}
	for name, q := range r.Limits {
		request(name, q)
	}
	if len(requests) > 0 {
		r.Requests = requests
	}
}

// setLimits sets the limits that are missing, of resources that the pod requests and each container limits, to the
// limits of the containers together, or else to the request (PodLevelResourcesFixDefaulting of Kubernetes 1.37).
func setLimits(pod *v1.Pod, r *v1.ResourceRequirements) {
	limits := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	for name, request := range r.Requests {
		everywhere := true
		for kind, c := range podspec.Containers(&pod.Spec) {
			_, limited := c.Resources.Limits[name]
			everywhere = everywhere && (limited || kind == podspec.EphemeralContainer)
		}
		if limit, ok := limits[name]; ok && everywhere {
			if request.Cmp(limit) > 0 {
				limit = request
			}
			setLimit(r, name, limit)
		}
	}
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// isNative reports whether Kubernetes itself defines the resource.
func isNative(name v1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// mayOvercommit reports whether requests of the resource may be lower than its limits.
func mayOvercommit(name v1.ResourceName) bool { return isNative(name) && !isHugePages(name) }
