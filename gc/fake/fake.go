// Package fake is a runtime of dead things, for tests of what collects them.
//
//	rt := fake.NewRuntime(&runtime.Pod{PodRef: web, Containers: …})
//	rt.Fail(fake.RemoveContainer, web.UID, 1, errors.New("device busy"))
//	collector, err := gc.New(rt, gone, gc.Options{})
//	…
//	left := rt.Pods()
//
// It holds what it is told, in any state, also one that no runtime comes into by
// itself. Where pods are to live and die of themselves, package runtime/fake is
// the runtime to collect from.
package fake

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/calls"
)

// The methods, for Fail, Hold and UntilCalled. ListPods is about no pod.
const (
	ListPods        = "ListPods"
	RemoveContainer = "RemoveContainer"
	RemoveSandbox   = "RemoveSandbox"
)

// Runtime is a [gc.Runtime]. It is safe for concurrent use.
type Runtime struct {
	calls.Log

	mu   sync.Mutex
	pods []*runtime.Pod
}

var _ gc.Runtime = (*Runtime)(nil)

// NewRuntime returns a runtime that holds the pods.
func NewRuntime(pods ...*runtime.Pod) *Runtime {
	r := &Runtime{}
	r.Set(pods...)
	return r
}

// Set makes these the pods that the runtime holds, and no others. They are copied.
func (r *Runtime) Set(pods ...*runtime.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods = copies(pods)
	r.Changed()
}

// Pods returns what the runtime holds. A pod of which nothing is left is gone.
func (r *Runtime) Pods() []*runtime.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return copies(r.pods)
}

func copies(pods []*runtime.Pod) []*runtime.Pod {
	out := make([]*runtime.Pod, len(pods))
	for i, p := range pods {
		out[i] = &runtime.Pod{PodRef: p.PodRef, Sandboxes: slices.Clone(p.Sandboxes), Containers: slices.Clone(p.Containers)}
	}
	return out
}

// ListPods implements [runtime.Lister].
func (r *Runtime) ListPods(ctx context.Context) ([]*runtime.Pod, error) {
	var pods []*runtime.Pod
	err := r.Do(ctx, calls.Call{Method: ListPods}, func() error {
		pods = r.Pods()
		return nil
	})
	return pods, err
}

// RemoveContainer implements [runtime.Remover]: one that runs is refused.
func (r *Runtime) RemoveContainer(ctx context.Context, id runtime.ContainerID) error {
	is := func(c runtime.Container) bool { return c.ID == id }
	call := calls.Call{Method: RemoveContainer, Detail: id.ID, Pods: r.holding(func(p *runtime.Pod) bool { return slices.ContainsFunc(p.Containers, is) })}
	return r.Do(ctx, call, func() error {
		return r.remove(func(p *runtime.Pod) error {
			i := slices.IndexFunc(p.Containers, is)
			if i >= 0 && p.Containers[i].State == runtime.ContainerRunning {
				return fmt.Errorf("container %s runs", id)
			}
			p.Containers = slices.DeleteFunc(p.Containers, is)
			return nil
		})
	})
}

// RemoveSandbox implements [runtime.Remover]: its containers go with it.
func (r *Runtime) RemoveSandbox(ctx context.Context, id string) error {
	is := func(s runtime.Sandbox) bool { return s.ID == id }
	call := calls.Call{Method: RemoveSandbox, Detail: id, Pods: r.holding(func(p *runtime.Pod) bool { return slices.ContainsFunc(p.Sandboxes, is) })}
	return r.Do(ctx, call, func() error {
		return r.remove(func(p *runtime.Pod) error {
			p.Sandboxes = slices.DeleteFunc(p.Sandboxes, is)
			p.Containers = slices.DeleteFunc(p.Containers, func(c runtime.Container) bool { return c.SandboxID == id })
			return nil
		})
	})
}

// holding returns the pods that have what is asked for.
func (r *Runtime) holding(has func(*runtime.Pod) bool) []runtime.PodRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	var refs []runtime.PodRef
	for _, p := range r.pods {
		if has(p) {
			refs = append(refs, p.PodRef)
		}
	}
	return refs
}

// remove takes something from each pod, and drops those of which nothing is left.
func (r *Runtime) remove(from func(*runtime.Pod) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		if err := from(p); err != nil {
			return err
		}
	}
	r.pods = slices.DeleteFunc(r.pods, empty)
	return nil
}

func empty(p *runtime.Pod) bool { return len(p.Sandboxes) == 0 && len(p.Containers) == 0 }
