package plan

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// sandboxDecision is the decision whether the newest sandbox can be used. If it can,
// attempt and id are those of the sandbox. Otherwise attempt is that of the next one.
type sandboxDecision struct {
	usable  bool
	attempt uint32
	id      string
}

// decideSandbox returns the decision about the sandbox in use, as the package documentation defines
// it.
func decideSandbox(pod *v1.Pod, status *runtime.PodStatus) sandboxDecision {
	if len(status.Sandboxes) == 0 {
		return sandboxDecision{attempt: 0}
	}
	ready, next := 0, uint32(0)
	for i := range status.Sandboxes {
		if s := &status.Sandboxes[i]; s.State == runtime.SandboxReady {
			ready++
		}
		next = max(next, min(status.Sandboxes[i].Attempt, math.MaxUint32-1)+1) // the runtime may return any number
	}
	newest, onHost := &status.Sandboxes[0], podspec.HasHostNetwork(pod)
	if newest.State != runtime.SandboxReady || ready > 1 || otherNamespaces(pod, newest) ||
		newest.HostNetwork != onHost || newest.LacksAddress() {
		return sandboxDecision{attempt: next}
	}
	return sandboxDecision{usable: true, attempt: newest.Attempt, id: newest.ID}
}

// otherNamespaces reports whether the spec requests other process or IPC namespaces than
// the sandbox has. An update of a pod that keeps its UID can do that. kubelet compares
// only the network.
func otherNamespaces(pod *v1.Pod, s *runtime.SandboxStatus) bool {
	return s.PID != "" && (s.PID != podspec.PIDNamespaceOf(pod) || s.HostIPC != pod.Spec.HostIPC)
}

// planSandbox plans a pod without a usable sandbox. Everything that runs is stopped. If
// the pod is not finished, it starts again with its init containers.
func (p *planner) planSandbox() {
	wanted := p.mainsAfterSandbox()
	if p.Pod.DeletionTimestamp != nil || len(wanted) == 0 || p.initFailedBefore() {
		p.out.KillPod = true
		return
	}
	p.out.KillPod = len(p.Status.Sandboxes) > 0 || p.Status.ContainersRunning()
	p.out.CreateSandbox = true
	for _, c := range wanted {
		p.oweSuccessor(p.Status.Newest(c.Name))
	}
	if inits := p.Pod.Spec.InitContainers; len(inits) > 0 {
		p.start(Start{Container: &inits[0], Kind: podspec.InitContainer})
		return
	}
	for _, c := range wanted {
		p.start(Start{Container: c, Kind: podspec.MainContainer})
	}
}

// mainsAfterSandbox returns the main containers to run in a new sandbox.
func (p *planner) mainsAfterSandbox() []*v1.Container {
	var wanted []*v1.Container
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		if p.decideGone(c, podspec.MainContainer, p.Status.Newest(c.Name)) == replace {
			wanted = append(wanted, c)
		}
	}
	return wanted
}

// initFailedBefore reports whether an init container has failed, or fails because its
// sandbox is lost, and its restart policy does not allow another try.
func (p *planner) initFailedBefore() bool {
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		n := p.Status.Newest(c.Name)
		if podspec.IsSidecar(c) || succeeded(n) {
			continue
		}
		if p.decideGone(c, podspec.InitContainer, n) == leave {
			return true
		}
	}
	return false
}
