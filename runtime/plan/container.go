package plan

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// verdict is what is to become of a container, given its newest instance.
type verdict int

const (
	keep    verdict = iota // it runs and goes on
	replace                // an instance is to be started, the newest is dead by then
	leave                  // it does not run, or stops now, and stays so
)

// judge decides about a container that is to run now, and has its newest
// instance, which may be nil, killed where need be.
func (p *planner) judge(c *v1.Container, kind runtime.ContainerKind, n *runtime.ContainerStatus) verdict {
	if n == nil || n.State == runtime.ContainerExited || n.SandboxID != p.out.SandboxID {
		return p.judgeGone(c, kind, n)
	}
	if n.State == runtime.ContainerCreated {
		// Created and started in one go, an instance stays in this state only if it
		// could not be started.
		return replace
	}
	reason, message := p.fault(c, kind, n)
	if reason == "" {
		return keep
	}
	// What is unknown or was made from another definition is replaced whatever the
	// restart policy says: the pod lacks the container that it asks for.
	again := reason == ReasonUnknown || reason == ReasonChanged || restartsAfterKill(p.Pod, c)
	if again && reason != ReasonUnknown {
		message += ", will be restarted"
	}
	p.kill(c, n, reason, message)
	if !again {
		return leave
	}
	p.oweSuccessor(n)
	return replace
}

// judgeGone decides about a container whose newest instance does not run any
// more, or was lost, whatever its state, with an earlier sandbox.
func (p *planner) judgeGone(c *v1.Container, kind runtime.ContainerKind, n *runtime.ContainerStatus) verdict {
	again := false
	switch {
	case n == nil || n.State == runtime.ContainerCreated:
		again = true // it has not run yet
	case n.State == runtime.ContainerExited:
		again = p.owesSuccessor(n) || runtime.ShouldRestart(p.Pod, c, kind, exitCode(kind, n))
	default:
		again = restartsAfterKill(p.Pod, c)
	}
	if again {
		return replace
	}
	return leave
}

// fault says why an instance that runs, or may run, must not go on; "" if it may.
func (p *planner) fault(c *v1.Container, kind runtime.ContainerKind, n *runtime.ContainerStatus) (reason, message string) {
	label := "Container " + c.Name
	if kind == runtime.InitContainer {
		label = "Init container " + c.Name
	}
	switch {
	case n.State != runtime.ContainerRunning:
		return ReasonUnknown, fmt.Sprintf("Container is in %q state, try killing it before restart", n.State)
	case changed(c, n):
		return ReasonChanged, label + " definition changed"
	case !runtime.HasProbe(p.Probes, p.Pod, c, runtime.LivenessProbe) && !runtime.HasProbe(p.Probes, p.Pod, c, runtime.StartupProbe):
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
	return reason, fmt.Sprintf("%s failed %s probe", label, probe)
}

// kill has the instance stopped; c is nil if its container is not in the spec.
func (p *planner) kill(c *v1.Container, n *runtime.ContainerStatus, reason, message string) {
	p.out.Kill = append(p.out.Kill, Kill{
		Container:   *n,
		Reason:      reason,
		Message:     message,
		GracePeriod: gracePeriod(p.Pod, c, reason),
	})
}

// killStrays has instances stopped that have no place in the pod, so that never
// two of a container run: those whose container is not in the spec, those that
// have a newer one, and those left in another sandbox.
func (p *planner) killStrays() {
	for i := range p.Status.Containers {
		n := &p.Status.Containers[i]
		if n.State != runtime.ContainerRunning && n.State != runtime.ContainerUnknown {
			continue
		}
		c, _ := runtime.FindContainer(&p.Pod.Spec, n.Name)
		switch {
		case c == nil:
			p.kill(nil, n, ReasonStray, "Container "+n.Name+" is not in the pod's spec")
		case p.Status.Newest(n.Name) != n:
			p.kill(c, n, ReasonStray, "Container "+n.Name+" has a newer instance")
		case n.SandboxID != p.out.SandboxID:
			p.kill(c, n, ReasonStray, "Container "+n.Name+" runs in a sandbox that is not the pod's any more")
			if restartsAfterKill(p.Pod, c) {
				p.oweSuccessor(n)
			}
		}
	}
}

// restartsAfterKill reports whether a container is to be started again after we
// have killed it. Its exit code then says nothing, so that rules on exit codes
// do not count: anything but Never restarts.
func restartsAfterKill(pod *v1.Pod, c *v1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != v1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy != v1.RestartPolicyNever
}

// changed reports whether the instance was made from another definition. One
// whose hash was not recorded is taken for unchanged.
func changed(c *v1.Container, n *runtime.ContainerStatus) bool {
	return n.Hash != 0 && n.Hash != runtime.ContainerHash(c)
}

// succeeded reports whether the instance of an init container, which may be nil,
// has run to a good end.
func succeeded(n *runtime.ContainerStatus) bool {
	return n != nil && n.State == runtime.ContainerExited && exitCode(runtime.InitContainer, n) == 0
}

// exitCode is the exit code that counts. An init container in which the kernel
// killed something for want of memory has failed, even if its first process says 0.
func exitCode(kind runtime.ContainerKind, n *runtime.ContainerStatus) int32 {
	const killed = 128 + 9
	if kind == runtime.InitContainer && n.ExitCode == 0 && n.Reason == "OOMKilled" {
		return killed
	}
	return n.ExitCode
}

// gracePeriod is how long an instance may take to stop, in seconds. A failed
// probe may have a period of its own, unless the pod is being deleted (KEP-2238).
func gracePeriod(pod *v1.Pod, c *v1.Container, reason string) int64 {
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
	return runtime.GracePeriod(pod)
}
