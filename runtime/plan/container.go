package plan

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// decision is what happens to a container and its newest instance.
type decision int

const (
	keep    decision = iota // it keeps running
	replace                 // a new instance is to be started; the newest is dead by then
	leave                   // it does not run, or is stopped now, and is not started again
)

// decide returns the decision about a container that should run now. If need be, it kills the newest
// instance n, which may be nil.
func (p *planner) decide(c *v1.Container, kind podspec.ContainerKind, n *runtime.ContainerStatus) decision {
	if n == nil || n.State == runtime.ContainerExited || n.SandboxID != p.out.SandboxID {
		return p.decideGone(c, kind, n)
	}
	if n.State == runtime.ContainerCreated {
		// An instance is started right after it is created. It stays in this state only if
		// it could not be started.
		return replace
	}
	reason, message := p.fault(c, kind, n)
	if reason == "" {
		if due := runtime.ResizeDue(p.Pod, c, kind, n); len(due) > 0 {
			p.out.Resize = append(p.out.Resize, Resize{Container: c, Kind: kind, Instance: *n, Resources: due})
		}
		return keep
	}
	// An instance in an unknown state or of another definition is replaced under any
	// policy: the pod does not have the container that its spec requests.
	again := reason == ReasonUnknown || reason == ReasonChanged || reason == ReasonResize || restartsAfterKill(p.Pod, c)
	if again && reason != ReasonUnknown && reason != ReasonResize && kind == podspec.MainContainer { // kubelet's texts
		message += ", will be restarted"
	}
	p.kill(c, n, reason, message)
	if !again {
		return leave
	}
	p.oweSuccessor(n)
	return replace
}

// decideGone returns the decision about a container whose newest instance has exited, or was in an
// earlier sandbox.
func (p *planner) decideGone(c *v1.Container, kind podspec.ContainerKind, n *runtime.ContainerStatus) decision {
	again := false
	switch {
	case n == nil || n.State == runtime.ContainerCreated:
		again = true // it has not run yet
	case n.State == runtime.ContainerExited:
		again = p.owesSuccessor(n) || podspec.ShouldRestart(p.Pod, c, kind, exitCode(kind, n))
	default:
		again = restartsAfterKill(p.Pod, c)
	}
	if again {
		return replace
	}
	return leave
}

// fault returns the reason to kill an instance that runs or may run. It is "" if there
// is none.
func (p *planner) fault(c *v1.Container, kind podspec.ContainerKind,
	n *runtime.ContainerStatus) (reason, message string) {
	label := "Container"
	if kind == podspec.InitContainer {
		label = "Init container"
	}
	switch {
	case n.State != runtime.ContainerRunning:
		return ReasonUnknown, fmt.Sprintf("%s is in %q state, try killing it before restart", label, n.State)
	case changed(c, n) && (kind != podspec.InitContainer || podspec.IsSidecar(c)):
		return ReasonChanged, label + " " + c.Name + " definition changed"
	case runtime.ResizeRestarts(p.Pod, c, n):
		return ReasonResize, "Container " + c.Name + " resize requires restart"
	case !runtime.HasProbe(p.Probes, p.Pod, c, runtime.LivenessProbe) && !runtime.HasProbe(p.Probes, p.Pod, c,
		runtime.StartupProbe):
		return "", ""
	}
	probe, unhealthy := p.Probes.Unhealthy(n.ID)
	if !unhealthy {
		return "", ""
	}
	reason = ReasonLivenessProbe
	if probe == runtime.StartupProbe {
		reason = ReasonStartupProbe
	}
	return reason, fmt.Sprintf("%s %s failed %s probe", label, c.Name, probe)
}

// kill adds the instance to those to stop. c is nil if its container is not in the spec.
func (p *planner) kill(c *v1.Container, n *runtime.ContainerStatus, reason, message string) {
	p.out.Kill = append(p.out.Kill, Kill{
		Container:   *n,
		Reason:      reason,
		Message:     message,
		GracePeriod: stopGracePeriod(p.Pod, c, reason),
	})
}

// killStrays stops the instances that do not belong to the pod, so that no container
// runs twice: those whose container is not in the spec, those with a newer instance, and
// those in another sandbox.
func (p *planner) killStrays() {
	names := map[string]bool{} // of the instances before n, of which the first of a name is the newest
	for i := range p.Status.Containers {
		n := &p.Status.Containers[i]
		replaced := names[n.Name]
		names[n.Name] = true
		if n.State != runtime.ContainerRunning && n.State != runtime.ContainerUnknown {
			continue
		}
		c, _ := podspec.FindContainer(&p.Pod.Spec, n.Name)
		switch {
		case c == nil:
			p.kill(nil, n, ReasonObsolete, "Container "+n.Name+" is not in the pod's spec")
		case replaced:
			p.kill(c, n, ReasonObsolete, "Container "+n.Name+" has a newer instance")
		case n.SandboxID != p.out.SandboxID:
			p.kill(c, n, ReasonObsolete, "Container "+n.Name+" runs in a sandbox that is not the pod's any more")
			if restartsAfterKill(p.Pod, c) {
				p.oweSuccessor(n)
			}
		}
	}
}

// restartsAfterKill reports whether a container is started again after the agent has
// killed it. Restart rules do not count, since the exit code is the agent's doing: every
// policy but Never restarts.
func restartsAfterKill(pod *v1.Pod, c *v1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != v1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy != v1.RestartPolicyNever
}

// changed reports whether the instance was created from another definition. It is false
// if the hash was not recorded.
func changed(c *v1.Container, n *runtime.ContainerStatus) bool {
	return n.Hash != 0 && n.Hash != podspec.ContainerHash(c)
}

// succeeded reports whether an init container has succeeded. n may be nil.
func succeeded(n *runtime.ContainerStatus) bool {
	return n != nil && n.State == runtime.ContainerExited && exitCode(podspec.InitContainer, n) == 0
}

// exitCode returns the exit code that counts. An init container in which a process was
// killed because of its memory has failed, also if its first process returned 0.
func exitCode(kind podspec.ContainerKind, n *runtime.ContainerStatus) int32 {
	const killed = 128 + 9
	if kind == podspec.InitContainer && n.ExitCode == 0 && n.Reason == "OOMKilled" {
		return killed
	}
	return n.ExitCode
}

// stopGracePeriod returns the grace period of an instance in seconds. A failed probe may
// have its own, which does not count when the pod is being deleted (KEP-2238).
func stopGracePeriod(pod *v1.Pod, c *v1.Container, reason string) int64 {
	if c != nil && pod.DeletionGracePeriodSeconds == nil {
		var probe *v1.Probe
		switch reason {
		case ReasonLivenessProbe:
			probe = c.LivenessProbe
		case ReasonStartupProbe:
			probe = c.StartupProbe
		}
		if probe != nil && probe.TerminationGracePeriodSeconds != nil {
			return *probe.TerminationGracePeriodSeconds
		}
	}
	return podspec.GracePeriod(pod)
}
