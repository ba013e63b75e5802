package plan

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Input is the input of [Compute], which changes nothing in it.
type Input struct {
	// Pod is the desired state, defaulted and validated.
	Pod *v1.Pod
	// Status is the observed state. It was read after the last actions for the pod were
	// carried out. If nil, the runtime has nothing of the pod.
	Status *runtime.PodStatus
	// Probes are the results of probes. If nil, the pod has no probes: every running
	// container counts as started and healthy.
	Probes runtime.ProbeResults
	// Now is the current time, by the clock that set the times in Status.
	Now time.Time
	// Backoff limits the rate of restarts.
	Backoff Backoff
	// Crashes is [Actions].Crashes of the previous call for this pod. At first it is nil.
	Crashes map[string]Crash
}

// Actions are the actions to carry out for a pod, in this order: KillPod or Kill, then Remove, then
// CreateSandbox or Resize, then Start. If none is set, the pod is as its spec requests, or waits.
type Actions struct {
	// KillPod means that everything in the status is to be stopped: the containers in
	// their [StopOrder], then the sandboxes. If CreateSandbox is set, the reason is that
	// the sandbox has to be replaced; otherwise the pod has finished or has failed for
	// good. Kill is then empty.
	KillPod bool
	// CreateSandbox means that a new sandbox is to be made, for the containers in Start.
	CreateSandbox bool
	// Attempt is the attempt number of the sandbox to make, or of the one in use.
	Attempt uint32
	// SandboxID is the sandbox in use. It is empty if there is none.
	SandboxID string
	// Kill has the containers to stop before any is started. They may be stopped at the
	// same time.
	Kill []Kill
	// Remove has instances to remove one after the other, in this order, when those in Kill have ended. Their logs
	// stay. The next call starts all containers of the pod (KEP-5532); this one starts none.
	Remove []runtime.ContainerStatus
	// Start has the containers to start now: ephemeral containers, then init containers,
	// then main containers, each in the order of the spec. They do not depend on each
	// other: if one fails, the others are still started.
	Start []Start
	// Resize has the running containers whose resources are to be changed in place, after the
	// stops and before the starts. They do not depend on each other.
	Resize []Resize
	// Waiting has the containers that are due but in back-off, by name.
	Waiting map[string]v1.ContainerStateWaiting
	// RetryAfter is the time until the first container in Waiting may start. It is 0 if
	// Waiting is empty.
	RetryAfter time.Duration
	// Crashes is to be passed to the next call. It is not changed later.
	Crashes map[string]Crash
}

// The reasons to kill a container. They are kubelet's words where kubelet has one.
const (
	// ReasonStartupProbe and ReasonLivenessProbe: the probe has reached its failure
	// threshold.
	ReasonStartupProbe  = "StartupProbe"
	ReasonLivenessProbe = "LivenessProbe"
	// ReasonUnknown: the state of the instance is unknown.
	ReasonUnknown = "Unknown"
	// ReasonChanged: the instance was created from another definition.
	ReasonChanged = "DefinitionChanged"
	// ReasonObsolete: the instance does not belong to the pod. Its container is not in the
	// spec, or has a newer instance, or its sandbox is not in use any more.
	ReasonObsolete = "Obsolete"
	// ReasonResize: the resources of the container have changed, and by its resize policy it
	// is restarted then.
	ReasonResize = "Resize"
	// ReasonRestartAll: a container has exited, and its restart rule restarts all containers of the pod.
	ReasonRestartAll = "RestartAllContainers"
)

// Kill is a container to stop.
type Kill struct {
	Container runtime.ContainerStatus
	// Reason is one of the constants above. Message is the text of an event.
	Reason, Message string
	// GracePeriod is the grace period in seconds: that of the failed probe, or that of the
	// pod.
	GracePeriod int64
}

// Resize is a running container whose resources are to be changed in place.
type Resize struct {
	// Container is part of the pod's spec, not a copy. It has the new resources.
	Container *v1.Container
	Kind      podspec.ContainerKind
	// Instance is the one that runs.
	Instance runtime.ContainerStatus
	// Resources are those that differ, see [runtime.ResizeDue].
	Resources []v1.ResourceName
}

// Start is a container to create and start.
type Start struct {
	// Container is part of the pod's spec, not a copy.
	Container *v1.Container
	Kind      podspec.ContainerKind
	// RestartCount is the restart count of the newest instance in the status plus one. It
	// is 0 if the status has none; earlier instances may still have left traces, such as
	// logs.
	RestartCount int32
	// Target is the container whose processes an ephemeral container sees. It is empty if
	// there is none.
	Target string
	// Backoff is to be recorded with the instance, as [runtime.ContainerStatus].Backoff.
	Backoff time.Duration
}

// Compute returns the actions for the pod. Equal inputs yield equal actions. A caller
// that carries them out, wholly or in part, and calls again with a new status, brings
// the pod to the state that its spec requests.
func Compute(in Input) Actions {
	if in.Status == nil {
		in.Status = &runtime.PodStatus{}
	}
	in.Backoff = in.Backoff.withDefaults()
	p := &planner{Input: in}
	p.out.Crashes = in.Crashes

	sandbox := decideSandbox(in.Pod, in.Status)
	p.out.SandboxID, p.out.Attempt = sandbox.id, sandbox.attempt
	switch {
	case p.planRestartAll():
		return p.out
	case sandbox.usable:
		p.planContainers()
	default:
		p.planSandbox()
	}
	if p.out.KillPod {
		p.out.Kill, p.out.Resize = nil, nil // KillPod includes them
		if !p.out.CreateSandbox {
			p.due = nil
		}
	}
	p.doBackOff()
	return p.out
}

// planner is the state of one Compute.
type planner struct {
	Input
	out Actions
	// copied means that out.Crashes is a copy and may be changed.
	copied bool
	// due are the containers to start, also those in back-off, in the order of Start.
	due []Start
}

// planContainers plans a pod that has a usable sandbox.
func (p *planner) planContainers() {
	p.killStrays()
	p.startEphemeral()
	switch p.planInit() {
	case initFailed:
		p.out.KillPod = true
	case initDone:
		if busy := p.planMain(); !busy {
			// Sidecars alone do not keep a pod alive.
			p.out.KillPod = true
		}
	}
}

// start adds the container to those that are due, unless the pod is being deleted.
func (p *planner) start(s Start) {
	if p.Pod.DeletionTimestamp != nil {
		return
	}
	if newest := p.Status.Newest(s.Container.Name); newest != nil {
		s.RestartCount = min(max(newest.RestartCount, 0), math.MaxInt32-1) + 1 // the runtime may return any number
	}
	p.due = append(p.due, s)
}

// startEphemeral starts the ephemeral containers that were not started before. They do
// not wait for init containers, and are not started again.
func (p *planner) startEphemeral() {
	for i := range p.Pod.Spec.EphemeralContainers {
		e := &p.Pod.Spec.EphemeralContainers[i]
		if p.Status.Newest(e.Name) == nil {
			p.start(Start{
				Container: (*v1.Container)(&e.EphemeralContainerCommon),
				Kind:      podspec.EphemeralContainer,
				Target:    e.TargetContainerName,
			})
		}
	}
}

// planMain plans the main containers. It reports whether one of them runs or is to run.
func (p *planner) planMain() (busy bool) {
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		switch p.decide(c, podspec.MainContainer, p.Status.Newest(c.Name)) {
		case keep:
			busy = true
		case replace:
			p.start(Start{Container: c, Kind: podspec.MainContainer})
			busy = busy || p.Pod.DeletionTimestamp == nil
		}
	}
	return busy
}
