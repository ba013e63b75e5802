package status

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Input has everything from which [Generate] makes the status of a pod. Generate does not
// change it.
type Input struct {
	// Pod is the desired state. Its status, if it has one, is the one in the API
	// server.
	Pod *v1.Pod
	// Runtime is the pod as last observed. If nil, the container statuses of Previous
	// are kept.
	Runtime *runtime.PodStatus
	// Previous is the last known status of this UID. If nil, it is the status of Pod.
	Previous *v1.PodStatus
	// Probes has the probe results. It is called only for running containers that have
	// a probe of the kind. If nil, all probes succeed.
	Probes runtime.ProbeResults
	// Waiting has the reasons why containers could not be started, by container name;
	// see [runtime.SyncResult]. It is not used for containers that run or have ended.
	Waiting map[string]v1.ContainerStateWaiting
	// HostIPs are the node's addresses, the primary one first, at most one of each
	// family.
	HostIPs []string
	// Now is the time of transitions that are seen for the first time.
	Now time.Time
	// Terminating means that the pod is being stopped: no container is started any more.
	Terminating bool
	// Terminated means that the pod has been stopped. It implies Terminating.
	Terminated bool
	// Resize has the conditions of a resize, PodResizePending and PodResizeInProgress, if there
	// are any.
	Resize []v1.PodCondition
	// Override, if not nil, may change phase, reason and message and add foreign
	// conditions, as for evictions, rejections and deadlines. A phase that was final
	// before stays. Override is called before the owned conditions are generated.
	Override func(*v1.PodStatus)
}

// Generate returns the API status of the pod. Times are truncated to seconds, as in
// the API. The result shares no memory with the input.
func Generate(in Input) v1.PodStatus {
	pod, prev := in.Pod, in.Previous
	if prev == nil {
		prev = &pod.Status
	}
	g := generation{Input: in, prev: prev}
	g.restartsAll = in.Runtime != nil && !g.stopping() && len(runtime.RestartingAll(pod, in.Runtime)) > 0
	g.restartingAll = g.restartsAll || !g.stopping() && isTrue(prev.Conditions, v1.AllContainersRestarting)

	s := v1.PodStatus{
		ObservedGeneration:         pod.Generation,
		QOSClass:                   podspec.QOSClass(pod),
		StartTime:                  g.startTime(),
		InitContainerStatuses:      g.containers(podspec.InitContainer, prev.InitContainerStatuses),
		ContainerStatuses:          g.containers(podspec.MainContainer, prev.ContainerStatuses),
		EphemeralContainerStatuses: g.containers(podspec.EphemeralContainer, prev.EphemeralContainerStatuses),
		AllocatedResources:         resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}),
		NominatedNodeName:          pod.Status.NominatedNodeName,
	}
	g.addresses(&s)

	s.Phase = phaseOf(pod, &s, in.Terminated, g.mainCreatedInSandbox(), g.restartsAll)
	clampPhase(&s, prev, &pod.Status)
	s.Resources = podResources(pod, &s, g.inForce())
	s.Conditions = g.foreignConditions()
	if in.Override != nil {
		in.Override(&s)
		s.Conditions = lastOfEach(s.Conditions)
		clampPhase(&s, prev, &pod.Status)
	}
	restartsAll := g.restartsAll || in.Runtime == nil && g.restartingAll
	setConditions(pod, &s, g.readyToStart(), isTrue(prev.Conditions, v1.PodInitialized), restartsAll)
	for _, c := range in.Resize {
		s.Conditions = putCondition(s.Conditions, c)
	}
	inherit(&s, prev, in.Now)
	normalize(pod, &s)
	return s
}

// generation is one call of Generate. prev is never nil.
type generation struct {
	Input
	prev *v1.PodStatus
	// restartsAll means that the runtime shows that all containers are being restarted (KEP-5532). restartingAll also
	// holds while that was so in the previous status: instances that are missing now were removed for it.
	restartsAll, restartingAll bool
}

// inForce returns the resources of the pod as a whole that are in force, or nil.
func (g *generation) inForce() *v1.ResourceRequirements {
	if g.Runtime == nil {
		return nil
	}
	return g.Runtime.Resources
}

// stopping reports whether no container of the pod is to be started any more.
func (g *generation) stopping() bool {
	return g.Terminating || g.Terminated || g.Pod.DeletionTimestamp != nil
}

// startTime is the time at which an agent on this node first saw the pod. If no
// earlier status has it, it comes from an annotation of the pod's sandbox, so that
// it is the same after a restart of the agent.
func (g *generation) startTime() *metav1.Time {
	for _, known := range []*metav1.Time{g.prev.StartTime, g.Pod.Status.StartTime} {
		if !known.IsZero() {
			return known.DeepCopy()
		}
	}
	start := g.Now
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(start) {
			start = t
		}
	}
	earlier(firstSeen(g.Pod.Annotations))
	if g.Runtime != nil {
		for i := range g.Runtime.Sandboxes {
			earlier(firstSeen(g.Runtime.Sandboxes[i].Annotations))
			earlier(g.Runtime.Sandboxes[i].CreatedAt)
		}
		for i := range g.Runtime.Containers {
			earlier(g.Runtime.Containers[i].CreatedAt)
		}
	}
	t := metav1.NewTime(start)
	return &t
}

// firstSeen returns the time in the annotation with which an agent records when it
// first saw the pod, zero if there is none.
func firstSeen(annotations map[string]string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, annotations[podspec.AnnotationConfigSeen])
	if err != nil {
		return time.Time{}
	}
	return t
}

// podResources are the resources of the pod as a whole: those that are allocated, and while it runs the
// CPU and memory that are in force by the inspection. If it has none, they are those that the containers have by their
// statuses; there is a limit then only if the pod or each container has one.
func podResources(pod *v1.Pod, s *v1.PodStatus, inForce *v1.ResourceRequirements) *v1.ResourceRequirements {
	r := pod.Spec.Resources.DeepCopy()
	if r == nil {
		r = &v1.ResourceRequirements{}
	}
	if s.Phase != v1.PodRunning {
		r.Requests = resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		r.Limits = resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
		return r
	}
	if r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	if r.Limits == nil {
		r.Limits = v1.ResourceList{}
	}
	if inForce != nil {
		if _, ok := r.Requests[v1.ResourceMemory]; !ok { // no cgroup has it
			if q, ok := podspec.Requests(pod)[v1.ResourceMemory]; ok {
				r.Requests[v1.ResourceMemory] = q
			}
		}
		overlay(r.Requests, others(inForce.Requests, r.Requests), nil, podspec.MinCPURequestMilli)
		overlay(r.Limits, others(inForce.Limits, r.Limits), nil, podspec.MinCPULimitMilli)
		return r
	}
	actual := *pod
	actual.Spec.InitContainers = asInForce(pod.Spec.InitContainers, s.InitContainerStatuses)
	actual.Spec.Containers = asInForce(pod.Spec.Containers, s.ContainerStatuses)
	requests := resourcehelper.PodRequests(&actual, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(&actual, resourcehelper.PodResourcesOptions{})
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if q, ok := requests[name]; ok {
			r.Requests[name] = q
		}
		if q, ok := limits[name]; ok && limited(&actual, name) {
			r.Limits[name] = q
		}
	}
	return r
}

// others returns the amounts that are not in the second list, so that equal ones keep their form.
func others(list, in v1.ResourceList) v1.ResourceList {
	out := maps.Clone(list)
	maps.DeleteFunc(out, func(name v1.ResourceName, q resource.Quantity) bool {
		known, ok := in[name]
		return ok && known.Cmp(q) == 0
	})
	return out
}

// limited reports whether the pod or each of its containers has a limit of the resource.
func limited(pod *v1.Pod, name v1.ResourceName) bool {
	if r := pod.Spec.Resources; r != nil && !r.Limits.Name(name, resource.DecimalSI).IsZero() {
		return true
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind != podspec.EphemeralContainer && c.Resources.Limits.Name(name, resource.DecimalSI).IsZero() {
			return false
		}
	}
	return true
}

// asInForce returns the containers with the resources in their statuses.
func asInForce(list []v1.Container, statuses []v1.ContainerStatus) []v1.Container {
	list = slices.Clone(list)
	for i := range list {
		if s := findStatus(statuses, list[i].Name); s != nil && s.Resources != nil {
			list[i].Resources = *s.Resources
		}
	}
	return list
}

// addresses sets the addresses of host and pod.
func (g *generation) addresses(s *v1.PodStatus) {
	host := familyPair(g.HostIPs, g.HostIPs)
	for _, ip := range host {
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	if len(host) > 0 {
		s.HostIP = host[0]
	} else {
		s.HostIP, s.HostIPs = g.prev.HostIP, append([]v1.HostIP(nil), g.prev.HostIPs...)
	}

	switch {
	case podspec.HasHostNetwork(g.Pod) && len(host) > 0:
		for _, ip := range host {
			s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
		}
	case g.Runtime != nil && (len(g.Runtime.IPs) > 0 || g.Runtime.ReadySandbox() != nil):
		for _, ip := range familyPair(g.Runtime.IPs, g.HostIPs) {
			s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
		}
	default:
		// A pod that was stopped keeps its addresses.
		s.PodIPs = append(s.PodIPs, g.prev.PodIPs...)
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}

// familyPair returns, in canonical form, the first address of the node's primary
// family and the first one of the other family. Strings that are no addresses are
// skipped.
func familyPair(ips, node []string) []string {
	primaryIs6 := false
	if len(node) > 0 {
		if a, err := netip.ParseAddr(node[0]); err == nil {
			primaryIs6 = a.Unmap().Is6()
		}
	}
	var first, second string
	for _, ip := range ips {
		a, err := netip.ParseAddr(ip)
		if err != nil {
			continue
		}
		a = a.Unmap()
		switch {
		case a.Is6() == primaryIs6 && first == "":
			first = a.String()
		case a.Is6() != primaryIs6 && second == "":
			second = a.String()
		}
	}
	var pair []string
	for _, ip := range []string{first, second} {
		if ip != "" {
			pair = append(pair, ip)
		}
	}
	return pair
}

// mainCreatedInSandbox reports whether a main container was created in the current
// sandbox, which means that the initialization of the pod is over.
func (g *generation) mainCreatedInSandbox() bool {
	sandbox := g.Runtime.ReadySandbox()
	if sandbox == nil {
		return false
	}
	for i := range g.Runtime.Containers {
		c := &g.Runtime.Containers[i]
		if c.SandboxID != sandbox.ID {
			continue
		}
		if spec, kind := podspec.FindContainer(&g.Pod.Spec, c.Name); spec != nil && kind == podspec.MainContainer {
			return true
		}
	}
	return false
}

// mainCreated reports whether the runtime has an instance of a main container.
func (g *generation) mainCreated() bool {
	for i := range g.Pod.Spec.Containers {
		if c := g.Runtime.Newest(g.Pod.Spec.Containers[i].Name); c != nil && c.State != runtime.ContainerUnknown {
			return true
		}
	}
	return false
}

// readyToStart is True if containers can be started in the newest sandbox: it is the only
// ready one, and its network is as the spec requests. The reason and the messages are those of kubelet.
func (g *generation) readyToStart() v1.PodCondition {
	if g.Runtime == nil {
		return readyToStartBefore(g.prev.Conditions)
	}
	ready := 0
	for i := range g.Runtime.Sandboxes {
		if g.Runtime.Sandboxes[i].State == runtime.SandboxReady {
			ready++
		}
	}
	c := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse, Reason: reasonSandboxNotReady}
	newest := g.Runtime.ReadySandbox()
	switch {
	case len(g.Runtime.Sandboxes) == 0:
		c.Message = messageNoSandbox
	case ready > 1:
		c.Message = "multiple pod sandboxes are ready and need to be reconciled"
	case newest == nil:
		c.Message = "pod sandbox is not ready"
	case newest.HostNetwork != podspec.HasHostNetwork(g.Pod):
		c.Message = "network namespace mode changed and sandbox needs to be recreated"
	case newest.LacksAddress():
		c.Message = "pod sandbox has no IP address"
	default:
		c.Status, c.Reason = v1.ConditionTrue, ""
	}
	return c
}

// foreignConditions returns the conditions that the agent does not own: those in the
// API server if the pod has any, else those of the previous status. A recorded
// disruption stays.
func (g *generation) foreignConditions() []v1.PodCondition {
	from := g.Pod.Status.Conditions
	if len(from) == 0 {
		from = g.prev.Conditions
	}
	var out []v1.PodCondition
	for i := range from {
		if !Owned(from[i].Type) {
			out = append(out, from[i])
		}
	}
	if c := findCondition(g.prev.Conditions, v1.DisruptionTarget); c != nil {
		out = putCondition(out, *c)
	}
	return out
}
