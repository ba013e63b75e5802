package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// progress is the progress of the initialisation of a pod or of one init container.
type progress int

const (
	initPending progress = iota
	initDone
	initFailed // for good
)

// planInit plans the init containers. The main containers may start if it returns
// initDone.
//
// The init containers before the frontier have succeeded, also if their instances were
// removed since; the sidecars among them are kept running. The init containers after the
// frontier wait. When a main container exists in the sandbox, the frontier is after the
// last init container.
func (p *planner) planInit() progress {
	inits := p.Pod.Spec.InitContainers
	if len(inits) == 0 {
		return initDone
	}
	frontier := p.frontier()
	for i := range min(frontier, len(inits)) {
		if c := &inits[i]; podspec.IsSidecar(c) {
			p.stepSidecar(c)
		}
	}
	switch {
	case frontier == len(inits):
		return initDone
	case frontier < 0:
		p.start(Start{Container: &inits[0], Kind: podspec.InitContainer})
		return initPending
	}
	step := p.stepInit
	if podspec.IsSidecar(&inits[frontier]) {
		step = p.stepSidecar
	}
	passed := step(&inits[frontier])
	if passed == initDone && frontier+1 < len(inits) {
		p.start(Start{Container: &inits[frontier+1], Kind: podspec.InitContainer})
		return initPending
	}
	return passed
}

// frontier returns the index of the last init container with an instance in the sandbox
// in use. It is -1 if there is none, and the number of init containers if a main
// container has an instance.
func (p *planner) frontier() int {
	inits := p.Pod.Spec.InitContainers
	for i := range p.Pod.Spec.Containers {
		if p.here(&p.Pod.Spec.Containers[i]) != nil {
			return len(inits)
		}
	}
	for i := len(inits) - 1; i >= 0; i-- {
		if p.here(&inits[i]) != nil {
			return i
		}
	}
	return -1
}

// here returns the newest instance of the container if it is in the sandbox in use, and
// otherwise nil: a container that ran in an earlier sandbox has to run again.
func (p *planner) here(c *v1.Container) *runtime.ContainerStatus {
	if n := p.Status.Newest(c.Name); n != nil && n.SandboxID == p.out.SandboxID {
		return n
	}
	return nil
}

// stepSidecar keeps a sidecar running. It is done when it runs and its startup probe, if
// it has one, has succeeded.
func (p *planner) stepSidecar(c *v1.Container) progress {
	n := p.here(c)
	if p.decide(c, podspec.InitContainer, n) == replace {
		p.start(Start{Container: c, Kind: podspec.InitContainer})
		return initPending
	}
	if runtime.HasProbe(p.Probes, p.Pod, c, runtime.StartupProbe) && !p.Probes.Started(n.ID) {
		return initPending
	}
	return initDone
}

// stepInit runs the init container at the frontier, which is not a sidecar. It is done
// when an instance has succeeded, also one of an earlier definition, as in kubelet.
func (p *planner) stepInit(c *v1.Container) progress {
	n := p.here(c)
	if n.State == runtime.ContainerUnknown && !restartsAfterKill(p.Pod, c) {
		return initFailed // it may have succeeded, but that cannot be known any more
	}
	decision := replace
	if succeeded(n) {
		if !p.owesSuccessor(n) {
			return initDone
		}
	} else {
		decision = p.decide(c, podspec.InitContainer, n)
	}
	switch decision {
	case replace:
		p.start(Start{Container: c, Kind: podspec.InitContainer})
	case leave:
		return initFailed
	}
	return initPending
}
