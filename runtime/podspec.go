package runtime

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Annotations that kubelet puts on pods and that this library shares with it.
const (
	// AnnotationConfigSource says where a pod comes from: "file", "http" or "api".
	AnnotationConfigSource = "kubernetes.io/config.source"
	// AnnotationConfigHash is the hash of a static pod's manifest.
	AnnotationConfigHash = "kubernetes.io/config.hash"
	// AnnotationConfigSeen is when this agent first saw the pod, in RFC 3339.
	AnnotationConfigSeen = "kubernetes.io/config.seen"
	// AnnotationConfigMirror marks the API server's mirror of a static pod; its
	// value is the static pod's hash.
	AnnotationConfigMirror = "kubernetes.io/config.mirror"
)

// SourceAPI is the value of [AnnotationConfigSource] of pods that come from an
// API server.
const SourceAPI = "api"

// DefaultGracePeriod is the termination grace period of a pod whose spec does
// not say, in seconds (API reference, terminationGracePeriodSeconds).
const DefaultGracePeriod = int64(v1.DefaultTerminationGracePeriodSeconds)

// IsStatic reports whether the pod comes from another source than an API server.
func IsStatic(pod *v1.Pod) bool {
	src, ok := pod.Annotations[AnnotationConfigSource]
	return ok && src != SourceAPI
}

// IsMirror reports whether the pod is the API server's mirror of a static pod.
func IsMirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[AnnotationConfigMirror]
	return ok
}

// ContainerKind tells in which list of the spec a container stands.
type ContainerKind int

// The kinds of containers. A sidecar is an init container by list.
const (
	MainContainer ContainerKind = iota
	InitContainer
	EphemeralContainer
)

// Containers ranges over all containers of the spec: init containers in their
// order, then main and ephemeral ones. The containers are those of the spec,
// not copies, and must not be changed; an ephemeral container appears as the
// container that it has in common with the others.
func Containers(spec *v1.PodSpec) iter.Seq2[ContainerKind, *v1.Container] {
	return func(yield func(ContainerKind, *v1.Container) bool) {
		for i := range spec.InitContainers {
			if !yield(InitContainer, &spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(MainContainer, &spec.Containers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield(EphemeralContainer, (*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// FindContainer returns the container of that name, or nil.
func FindContainer(spec *v1.PodSpec, name string) (*v1.Container, ContainerKind) {
	for kind, c := range Containers(spec) {
		if c.Name == name {
			return c, kind
		}
	}
	return nil, MainContainer
}

// IsSidecar reports whether the init container is to keep running beside the
// main ones (KEP-753).
func IsSidecar(init *v1.Container) bool {
	return init.RestartPolicy != nil && *init.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// ShouldRestart reports whether a container that has exited with the code is to
// be started again. A container's own policy, and before it its own rules
// (KEP-5307), come before the pod's. An init container under policy Always is
// started again only when it has failed, as under OnFailure.
func ShouldRestart(pod *v1.Pod, c *v1.Container, kind ContainerKind, exitCode int32) bool {
	if kind == EphemeralContainer {
		return false
	}
	for _, rule := range c.RestartPolicyRules {
		if rule.Action == v1.ContainerRestartRuleActionRestart && exitCodesMatch(rule.ExitCodes, exitCode) {
			return true
		}
	}
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = v1.RestartPolicy(*c.RestartPolicy)
	} else if kind == InitContainer && policy == v1.RestartPolicyAlways {
		policy = v1.RestartPolicyOnFailure
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

func exitCodesMatch(req *v1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if req == nil {
		return false
	}
	in := slices.Contains(req.Values, code)
	switch req.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return in
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !in
	default:
		return false
	}
}

// GracePeriod is how long the pod may take to end, in seconds: what its
// deletion says, else its spec, else [DefaultGracePeriod].
func GracePeriod(pod *v1.Pod) int64 {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	default:
		return DefaultGracePeriod
	}
}

// HasHostNetwork reports whether the pod uses the network of the host.
func HasHostNetwork(pod *v1.Pod) bool { return pod.Spec.HostNetwork }

// qosResources are the resources that count for the quality-of-service class.
var qosResources = [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// QOSClass is the pod's quality-of-service class: Guaranteed where each
// container, or the pod as a whole, has limits for CPU and memory that equal its
// requests, BestEffort where none has either, Burstable between them.
func QOSClass(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	var all []v1.ResourceRequirements
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		all = append(all, *pod.Spec.Resources)
	} else {
		for kind, c := range Containers(&pod.Spec) {
			if kind != EphemeralContainer {
				all = append(all, c.Resources)
			}
		}
	}
	some, guaranteed := false, true
	for i := range all {
		for _, name := range qosResources {
			req, lim := all[i].Requests[name], all[i].Limits[name]
			if req.Sign() > 0 || lim.Sign() > 0 {
				some = true
			}
			// A request that is not given is the limit (API reference).
			_, given := all[i].Requests[name]
			if lim.Sign() <= 0 || given && req.Cmp(lim) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case !some:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	default:
		return v1.PodQOSBurstable
	}
}
