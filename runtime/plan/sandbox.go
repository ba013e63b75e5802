package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// sandboxVerdict says whether the newest sandbox can be used. If so attempt and
// id are its own, else attempt is that of its successor.
type sandboxVerdict struct {
	usable  bool
	attempt uint32
	id      string
}

// judgeSandbox finds the sandbox that the pod's containers are to run in. It has
// to be ready, the only one that is, with the namespaces that the spec asks for and,
// if the network is not the host's, with an address.
func judgeSandbox(pod *v1.Pod, status *runtime.PodStatus) sandboxVerdict {
	if len(status.Sandboxes) == 0 {
		return sandboxVerdict{attempt: 0}
	}
	ready, next := 0, uint32(0)
	for i := range status.Sandboxes {
		if s := &status.Sandboxes[i]; s.State == runtime.SandboxReady {
			ready++
		}
		next = max(next, status.Sandboxes[i].Attempt+1)
	}
	newest, onHost := &status.Sandboxes[0], runtime.HasHostNetwork(pod)
	if newest.State != runtime.SandboxReady || ready > 1 || otherNamespaces(pod, newest) ||
		newest.HostNetwork != onHost || !onHost && len(newest.IPs) == 0 {
		return sandboxVerdict{attempt: next}
	}
	return sandboxVerdict{usable: true, attempt: newest.Attempt, id: newest.ID}
}

// otherNamespaces reports whether the spec has come to ask for other process or
// IPC namespaces than the sandbox has, as it can where the pod keeps its UID. The
// kubelet looks at the network only, and leaves such a pod as it is.
func otherNamespaces(pod *v1.Pod, s *runtime.SandboxStatus) bool {
	return s.PID != "" && (s.PID != runtime.PIDNamespaceOf(pod) || s.HostIPC != pod.Spec.HostIPC)
}

// planSandbox plans a pod that has no usable sandbox: what is left of it is
// stopped, and if it still has work to do it begins anew, init containers
// included.
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
		p.start(Start{Container: &inits[0], Kind: runtime.InitContainer})
		return
	}
	for _, c := range wanted {
		p.start(Start{Container: c, Kind: runtime.MainContainer})
	}
}

// mainsAfterSandbox returns the main containers that are to run in a new sandbox.
func (p *planner) mainsAfterSandbox() []*v1.Container {
	var wanted []*v1.Container
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		if p.judgeGone(c, runtime.MainContainer, p.Status.Newest(c.Name)) == replace {
			wanted = append(wanted, c)
		}
	}
	return wanted
}

// initFailedBefore reports whether an init container has failed, or fails by the
// loss of its sandbox, in a way that its restart policy does not forgive.
func (p *planner) initFailedBefore() bool {
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		n := p.Status.Newest(c.Name)
		if runtime.IsSidecar(c) || succeeded(n) {
			continue
		}
		if p.judgeGone(c, runtime.InitContainer, n) == leave {
			return true
		}
	}
	return false
}
