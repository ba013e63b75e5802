package runtime

import (
	"iter"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
// be started again in a pod that is not being deleted. The first rule of the
// container that matches the code comes first (KEP-5307), then the container's
// own policy, then the pod's; rules count only beside a policy of the container's
// own, as the API has them. A sidecar is always started again, an init container
// that has succeeded and an ephemeral container never.
//
// A rule that restarts all containers (KEP-5532) restarts this one too; that it
// restarts the others is for the caller to know.
func ShouldRestart(pod *v1.Pod, c *v1.Container, kind ContainerKind, exitCode int32) bool {
	switch {
	case kind == EphemeralContainer:
		return false
	case kind == InitContainer && IsSidecar(c):
		return true
	case kind == InitContainer && exitCode == 0:
		return false
	}
	if c.RestartPolicy != nil {
		switch matchingAction(c.RestartPolicyRules, exitCode) {
		case v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers:
			return true
		}
		switch *c.RestartPolicy {
		case v1.ContainerRestartPolicyAlways:
			return true
		case v1.ContainerRestartPolicyOnFailure:
			return exitCode != 0
		case v1.ContainerRestartPolicyNever:
			return false
		}
	}
	switch pod.Spec.RestartPolicy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

// matchingAction returns the action of the first rule that matches, or "".
func matchingAction(rules []v1.ContainerRestartRule, exitCode int32) v1.ContainerRestartRuleAction {
	for i := range rules {
		if exitCodesMatch(rules[i].ExitCodes, exitCode) {
			return rules[i].Action
		}
	}
	return ""
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

// maxFileName is the longest name of a file, in bytes (NAME_MAX of Linux).
const maxFileName = 255

// IsFileName reports whether the UID can name the pod's directory. With one that
// cannot, the pod's files would lie, and be deleted, elsewhere.
func IsFileName(uid types.UID) bool {
	s := string(uid)
	return s != "" && s != "." && s != ".." && len(s) <= maxFileName && !strings.ContainsAny(s, "/\\\x00")
}

// PIDNamespaceOf returns whose processes the pod's containers are to see.
func PIDNamespaceOf(pod *v1.Pod) PIDNamespace {
	switch {
	case pod.Spec.HostPID:
		return PIDHost
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		return PIDPod
	default:
		return PIDContainer
	}
}

// HasHostNetwork reports whether the pod uses the network of the host.
func HasHostNetwork(pod *v1.Pod) bool { return pod.Spec.HostNetwork }

// qosResources are the resources that count for the quality-of-service class.
var qosResources = [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// QOSClass is the pod's quality-of-service class: Guaranteed where each
// container, or the pod as a whole, has limits for CPU and memory that equal its
// requests, BestEffort where none has either, Burstable between them. Once the
// pod has resources of its own, those of its containers do not count. The class
// in the pod's status comes first.
//
// The pod is expected to have the API's defaults. Without them a container's
// missing request still counts as equal to its limit; a pod's own does not.
func QOSClass(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	some, guaranteed := false, true
	count := func(r *v1.ResourceRequirements, implied bool) {
		for _, name := range qosResources {
			req, given := r.Requests[name]
			lim := r.Limits[name]
			if !given && implied {
				req = lim
			}
			some = some || req.Sign() > 0 || lim.Sign() > 0
			guaranteed = guaranteed && lim.Sign() > 0 && req.Cmp(lim) == 0
		}
	}
	if pod.Spec.Resources != nil {
		count(pod.Spec.Resources, false)
	} else {
		for kind, c := range Containers(&pod.Spec) {
			if kind != EphemeralContainer {
				count(&c.Resources, true)
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
