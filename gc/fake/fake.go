// Package fake has fakes of package gc for tests: [Runtime] is a runtime that holds dead
// containers and sandboxes, and [Collector] is a garbage collector that records its
// calls.
//
//	rt := fake.NewRuntime(&runtime.Pod{PodRef: web, Containers: …})
//	rt.Fail(fake.RemoveContainer, web.UID, 1, errors.New("device busy"))
//	collector, err := gc.New(rt, gone, gc.Options{})
//	…
//	left := rt.Pods()
//
// The runtime holds the pods that a test gives it, in any state. Package runtime/fake
// is a runtime whose pods start and end.
package fake

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/calls"
)

// The methods of [Runtime], for Fail, Hold and UntilCalled. ListPods is about no pod.
const (
	ListPods        = "ListPods"
	RemoveContainer = "RemoveContainer"
	RemoveSandbox   = "RemoveSandbox"
)

// Runtime is the part of a container runtime that a gc.ContainerGC uses. It is safe for concurrent use.
type Runtime struct {
	calls.Log

	mu   sync.Mutex
	pods []*runtime.Pod
}

// NewRuntime returns a runtime that holds the pods.
func NewRuntime(pods ...*runtime.Pod) *Runtime {
	r := &Runtime{}
	r.Set(pods...)
	return r
}

// Set replaces the pods that the runtime holds. It copies them.
func (r *Runtime) Set(pods ...*runtime.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods = copies(pods)
	r.Changed()
}

// Pods returns the pods that have a container or a sandbox in the runtime.
func (r *Runtime) Pods() []*runtime.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return copies(r.pods)
}

func copies(pods []*runtime.Pod) []*runtime.Pod {
	out := make([]*runtime.Pod, len(pods))
	for i, p := range pods {
		out[i] = &runtime.Pod{PodRef: p.PodRef, Sandboxes: slices.Clone(p.Sandboxes),
			Containers: slices.Clone(p.Containers)}
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

// RemoveContainer implements [runtime.Remover]. A container that runs is an error.
func (r *Runtime) RemoveContainer(ctx context.Context, id runtime.ContainerID) error {
	is := func(c runtime.Container) bool { return c.ID == id }
	call := calls.Call{Method: RemoveContainer, Detail: id.ID,
		Pods: r.holding(func(p *runtime.Pod) bool { return slices.ContainsFunc(p.Containers, is) })}
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

// RemoveSandbox implements [runtime.Remover]. It removes the containers in it, too.
func (r *Runtime) RemoveSandbox(ctx context.Context, id string) error {
	is := func(s runtime.Sandbox) bool { return s.ID == id }
	call := calls.Call{Method: RemoveSandbox, Detail: id,
		Pods: r.holding(func(p *runtime.Pod) bool { return slices.ContainsFunc(p.Sandboxes, is) })}
	return r.Do(ctx, call, func() error {
		return r.remove(func(p *runtime.Pod) error {
			p.Sandboxes = slices.DeleteFunc(p.Sandboxes, is)
			p.Containers = slices.DeleteFunc(p.Containers, func(c runtime.Container) bool { return c.SandboxID == id })
			return nil
		})
	})
}

// holding returns the pods for which has returns true.
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

// remove calls from for each pod, and drops pods without containers and sandboxes.
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
