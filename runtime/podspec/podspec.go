package podspec

import (
	"iter"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Annotations of pods. They are kubelet's.
const (
	// AnnotationConfigSource is the source of the pod: "file", "http" or "api".
	AnnotationConfigSource = "kubernetes.io/config.source"
	// AnnotationConfigHash is the hash of a static pod's manifest.
	AnnotationConfigHash = "kubernetes.io/config.hash"
	// AnnotationConfigSeen is the time at which the agent first received the pod, in
	// RFC 3339.
	AnnotationConfigSeen = "kubernetes.io/config.seen"
	// AnnotationConfigMirror is set on a mirror pod, which represents a static pod in an
	// API server. Its value is the hash of the static pod.
	AnnotationConfigMirror = "kubernetes.io/config.mirror"
)

// SourceAPI is the value of [AnnotationConfigSource] for pods from an API server.
const SourceAPI = "api"

// DefaultGracePeriod is the default termination grace period of a pod, in seconds (API
// reference, terminationGracePeriodSeconds).
const DefaultGracePeriod = int64(v1.DefaultTerminationGracePeriodSeconds)

// IsStatic reports whether the pod comes from a source other than an API server.
func IsStatic(pod *v1.Pod) bool {
	src, ok := pod.Annotations[AnnotationConfigSource]
	return ok && src != SourceAPI
}

// IsMirror reports whether the pod is a mirror pod.
func IsMirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[AnnotationConfigMirror]
	return ok
}

// systemCriticalPriority is the lowest priority of the system's priority classes (kubelet:
// scheduling.SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// HasCriticalPriority reports whether the pod has at least the priority of the system's
// priority classes.
func HasCriticalPriority(pod *v1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCriticalPriority
}

// IsCritical reports whether the pod is one that the node or the cluster needs, as kubelet
// judges it: a static pod, a mirror pod, or one with [HasCriticalPriority].
func IsCritical(pod *v1.Pod) bool {
	return IsStatic(pod) || IsMirror(pod) || HasCriticalPriority(pod)
}

// IsPhaseTerminal reports whether the phase is Succeeded or Failed. A pod in such a phase never
// runs again.
func IsPhaseTerminal(phase v1.PodPhase) bool {
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}

// ContainerKind is the list of the spec that a container is in.
type ContainerKind int

// The kinds of containers. A sidecar is an init container.
const (
	MainContainer ContainerKind = iota
	InitContainer
	EphemeralContainer
)

// Containers ranges over all containers of the spec: init containers, then main
// containers, then ephemeral ones, each in their order. The containers are not copies
// and must not be changed. An ephemeral container is converted to the fields that it
// has in common with the others.
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

// Statuses ranges over the statuses of all containers, in the order of [Containers]. They are not copies.
func Statuses(status *v1.PodStatus) iter.Seq[*v1.ContainerStatus] {
	return func(yield func(*v1.ContainerStatus) bool) {
		for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses,
			status.EphemeralContainerStatuses} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// UsedVolumes ranges over the volumes that a container of the spec uses, in their order: as a
// mount, as a block device, or for an environment variable (fileKeyRef). The volumes are not
// copies and must not be changed. As in kubelet, a pod does not need its other volumes.
func UsedVolumes(spec *v1.PodSpec) iter.Seq[*v1.Volume] {
	return func(yield func(*v1.Volume) bool) {
		if len(spec.Volumes) == 0 {
			return
		}
		used := make(map[string]struct{}, len(spec.Volumes))
		for _, c := range Containers(spec) {
			for i := range c.VolumeMounts {
				used[c.VolumeMounts[i].Name] = struct{}{}
			}
			for i := range c.VolumeDevices {
				used[c.VolumeDevices[i].Name] = struct{}{}
			}
			for i := range c.Env {
				if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
					used[from.FileKeyRef.VolumeName] = struct{}{}
				}
			}
		}
		for i := range spec.Volumes {
			if _, ok := used[spec.Volumes[i].Name]; ok && !yield(&spec.Volumes[i]) {
				return
			}
		}
	}
}

// FindContainer returns the container with the name and its kind. It returns nil if
// there is none.
func FindContainer(spec *v1.PodSpec, name string) (*v1.Container, ContainerKind) {
	for kind, c := range Containers(spec) {
		if c.Name == name {
			return c, kind
		}
	}
	return nil, MainContainer
}

// IsSidecar reports whether the init container keeps running beside the main
// containers (KEP-753).
func IsSidecar(init *v1.Container) bool {
	return init.RestartPolicy != nil && *init.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// MayRestartAll reports whether a restart rule of a container requests that all containers of the pod are restarted
// (KEP-5532).
func MayRestartAll(pod *v1.Pod) bool {
	for kind, c := range Containers(&pod.Spec) {
		if kind == EphemeralContainer {
			continue
		}
		for i := range c.RestartPolicyRules {
			if c.RestartPolicyRules[i].Action == v1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

// RestartsAll reports whether all containers of the pod are restarted because the container has exited with the
// code (KEP-5532): the first restart rule that matches the code requests it, whatever the kind of the container is.
func RestartsAll(c *v1.Container, exitCode int32) bool {
	return matchingAction(c.RestartPolicyRules, exitCode) == v1.ContainerRestartRuleActionRestartAllContainers
}

// ShouldRestart reports whether a container that has exited with the code is started
// again, if its pod is not being deleted. The order of precedence is: the first restart
// rule of the container that matches the code (KEP-5307), the container's own policy,
// the pod's policy. Rules without a policy of the container are ignored; the API does
// not allow them. A sidecar is always started again. An init container that succeeded
// and an ephemeral container are never started again.
//
// A rule that restarts all containers (KEP-5532) restarts this one. For the others see [RestartsAll].
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

// GracePeriod returns the termination grace period of the pod in seconds: that of its
// deletion, or that of its spec, or [DefaultGracePeriod].
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

// maxFileName is the maximum length of a file name in bytes (NAME_MAX of Linux).
const maxFileName = 255

// IsFileName reports whether the UID is valid as the name of the pod's directory. With
// another UID, such as "../x", the pod's files would be made and deleted elsewhere.
func IsFileName(uid types.UID) bool {
	s := string(uid)
	return s != "" && s != "." && s != ".." && len(s) <= maxFileName && !strings.ContainsAny(s, "/\\\x00")
}

// PIDNamespace is a kind of process namespace. It decides which processes a container
// sees.
type PIDNamespace string

// The kinds of process namespaces.
const (
	PIDContainer PIDNamespace = "container" // one for each container
	PIDPod       PIDNamespace = "pod"       // one for all containers of the pod
	PIDHost      PIDNamespace = "host"      // that of the host
)

// PIDNamespaceOf returns the process namespace that the pod's spec requests.
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

// HasHostNetwork reports whether the pod's spec requests the network of the host.
func HasHostNetwork(pod *v1.Pod) bool { return pod.Spec.HostNetwork }

// HasUserNamespace reports whether the pod's spec requests a user namespace of its own (hostUsers: false).
func HasUserNamespace(pod *v1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// qosResources are the resources that decide the quality-of-service class.
var qosResources = [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// QOSClass returns the pod's quality-of-service class. It is the class in the pod's
// status if that is set. Otherwise it is Guaranteed if each container has limits for CPU
// and memory that equal its requests, BestEffort if no container has a limit or a
// request, and Burstable in between. If the pod has pod-level resources that are not empty,
// they decide instead of those of the containers (PodLevelResourcesFixKubeletQOSClass of Kubernetes 1.37).
//
// The pod is expected to have the API's defaults. A missing request of a container
// counts as equal to its limit; a missing pod-level request does not.
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
	if resourcehelper.IsPodLevelResourcesSet(pod) {
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

// HasGuaranteedResources reports whether the container requests CPU and memory, both as much as its limits. In a
// Guaranteed pod with resources as a whole, such a container has its own, and the others share what is left.
func HasGuaranteedResources(c *v1.Container) bool {
	for _, name := range qosResources {
		request := c.Resources.Requests[name]
		if request.IsZero() || request.Cmp(c.Resources.Limits[name]) != 0 {
			return false
		}
	}
	return true
}
