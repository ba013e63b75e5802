package plan

import (
	"fmt"
	"slices"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// planRestartAll plans the restart of all containers, and reports whether there is one. All instances are stopped and
// removed, those of the containers that requested it last. While these are in back-off, they stay, and nothing is
// started.
func (p *planner) planRestartAll() bool {
	if p.Pod.DeletionTimestamp != nil {
		return false
	}
	sources := runtime.RestartingAll(p.Pod, p.Status)
	if len(sources) == 0 {
		return false
	}
	var wait bool
	for _, name := range sources {
		c, _ := podspec.FindContainer(&p.Pod.Spec, name)
		n := p.Status.Newest(name)
		crash, left := p.Backoff.admit(p.recall(c, n), definitionOf(c), n, n, p.Now)
		p.remember(name, crash)
		if left > 0 {
			wait = true
			p.wait(name, crash.Delay, left)
		}
	}
	if !wait {
		p.out.Waiting, p.out.RetryAfter = nil, 0
	}
	// Mains before inits, and targets before sources, as in kubelet.
	var order [4][]runtime.ContainerStatus
	for i := range p.Status.Containers {
		n := &p.Status.Containers[i]
		c, kind := podspec.FindContainer(&p.Pod.Spec, n.Name)
		if c == nil || kind == podspec.EphemeralContainer {
			continue
		}
		if n.State == runtime.ContainerRunning || n.State == runtime.ContainerUnknown {
			p.out.Kill = append(p.out.Kill, Kill{
				Container: *n, Reason: ReasonRestartAll,
				Message: fmt.Sprintf("Container %s is restarted with all others, because container %s has exited",
					n.Name, sources[0]),
			})
		}
		group := 0
		if kind == podspec.InitContainer {
			group = 1
		}
		if runtime.RestartsAll(c, kind, n) {
			group += 2
		}
		order[group] = append(order[group], *n)
	}
	for group, list := range order {
		if group < 2 || !wait {
			slices.Reverse(list) // the newest, which counts, goes last
			p.out.Remove = append(p.out.Remove, list...)
		}
	}
	return true
}
