package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Input is all that [Compute] looks at. Nothing in it is changed.
type Input struct {
	// Pod is the desired state, defaulted and validated.
	Pod *v1.Pod
	// Status is the pod as observed, newer than the end of the last actions that
	// were carried out for it; nil means that the runtime does not know the pod.
	Status *runtime.PodStatus
	// Probes is what probes have found; nil means that there are none, so that
	// every running container counts as started and healthy.
	Probes runtime.ProbeResults
	// Now is the time by the clock that also stamps the exits in Status.
	Now time.Time
	// Backoff limits how often a container is started again.
	Backoff Backoff
	// Crashes is what the previous Compute for this pod returned; nil at first.
	Crashes map[string]Crash
}

// Actions is what is to be done for a pod, in this order: KillPod, or else Kill;
// then CreateSandbox; then Start. Where all of these are unset the pod is as it
// should be, or waits.
type Actions struct {
	// KillPod asks for everything in the status to be stopped, containers in their
	// [StopOrder] and then sandboxes: because the sandbox has to be replaced, if
	// CreateSandbox is set too, else because the pod has done its work or has failed
	// for good. Kill is empty then.
	KillPod bool
	// CreateSandbox asks for a new sandbox to start containers in.
	CreateSandbox bool
	// Attempt is the number of the sandbox to create, or of the one in use.
	Attempt uint32
	// SandboxID is the sandbox in use; "" if it has to be created or there is none.
	SandboxID string
	// Kill has the containers to stop before any is started. They may be stopped
	// side by side.
	Kill []Kill
	// Start has the containers to start now: ephemeral ones, then init containers,
	// then main ones, each in the order of the spec. None of them has to wait for
	// another, and one that fails does not keep the others from being started.
	Start []Start
	// Waiting has, by container name, those that would be in Start but for their
	// back-off.
	Waiting map[string]v1.ContainerStateWaiting
	// RetryAfter is the time until the first of Waiting may start; 0 if none waits.
	RetryAfter time.Duration
	// Crashes is to be handed in next time. It is not changed after.
	Crashes map[string]Crash
}

// Reasons for which a container is killed. Those that kubelet has too are in
// kubelet's words.
const (
	// ReasonStartupProbe and ReasonLivenessProbe: the probe has failed for good.
	ReasonStartupProbe  = "StartupProbe"
	ReasonLivenessProbe = "LivenessProbe"
	// ReasonUnknown: the runtime does not know whether the instance runs.
	ReasonUnknown = "Unknown"
	// ReasonChanged: the instance was made from another definition.
	ReasonChanged = "DefinitionChanged"
	// ReasonStray: the instance has no place in the pod. Its container is not in the
	// spec, or has a newer instance, or the sandbox is not the pod's any more.
	ReasonStray = "Stray"
)

// Kill is a container to stop.
type Kill struct {
	Container runtime.ContainerStatus
	// Reason is one of the Reason constants, Message the sentence for an event.
	Reason, Message string
	// GracePeriod in seconds: the failed probe's own if it has one, else the pod's.
	GracePeriod int64
}

// Start is a container to create and start.
type Start struct {
	// Container points into the spec of the pod.
	Container *v1.Container
	Kind      runtime.ContainerKind
	// RestartCount is one more than that of the newest instance that the status
	// knows. 0 says that it knows none; a trace that earlier ones have left
	// elsewhere, such as their logs, may tell better.
	RestartCount int32
	// Target is the container whose processes an ephemeral container is to see; ""
	// for none.
	Target string
}

// Compute returns what is to be done for the pod now. It is a pure function:
// equal inputs yield equal actions. Carrying them out, wholly or in part, and
// computing anew from a fresh status leads a pod to where it should be.
func Compute(in Input) Actions {
	if in.Status == nil {
		in.Status = &runtime.PodStatus{}
	}
	in.Backoff = in.Backoff.withDefaults()
	p := &planner{Input: in}
	p.out.Crashes = in.Crashes

	sandbox := judgeSandbox(in.Pod, in.Status)
	p.out.SandboxID, p.out.Attempt = sandbox.id, sandbox.attempt
	if sandbox.usable {
		p.planContainers()
	} else {
		p.planSandbox()
	}
	if p.out.KillPod {
		p.out.Kill = nil // all of them, anyway
		if !p.out.CreateSandbox {
			p.due = nil
		}
	}
	p.applyBackoff()
	return p.out
}

// planner is one computation under way.
type planner struct {
	Input
	out Actions
	// copied says that out.Crashes is ours to write to.
	copied bool
	// due are the containers to start, back-off or not, in the order of Start.
	due []Start
}

// planContainers plans a pod that has the sandbox it needs.
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

// start notes that the container is to be started. Nothing of a pod that is
// being deleted is.
func (p *planner) start(s Start) {
	if p.Pod.DeletionTimestamp != nil {
		return
	}
	if newest := p.Status.Newest(s.Container.Name); newest != nil {
		s.RestartCount = newest.RestartCount + 1
	}
	p.due = append(p.due, s)
}

// startEphemeral starts the ephemeral containers that never were. They need the
// sandbox only, do not wait for init containers, and are never started again.
func (p *planner) startEphemeral() {
	for i := range p.Pod.Spec.EphemeralContainers {
		e := &p.Pod.Spec.EphemeralContainers[i]
		if p.Status.Newest(e.Name) == nil {
			p.start(Start{
				Container: (*v1.Container)(&e.EphemeralContainerCommon),
				Kind:      runtime.EphemeralContainer,
				Target:    e.TargetContainerName,
			})
		}
	}
}

// planMain plans the main containers, which all start and live side by side. It
// reports whether one is left that runs or is to run.
func (p *planner) planMain() (busy bool) {
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		switch p.judge(c, runtime.MainContainer, p.Status.Newest(c.Name)) {
		case keep:
			busy = true
		case replace:
			p.start(Start{Container: c, Kind: runtime.MainContainer})
			busy = busy || p.Pod.DeletionTimestamp == nil
		}
	}
	return busy
}
