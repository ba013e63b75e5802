package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Router is a runtime made of several: a pod runs on the one that its runtime class
// names, else on the default. So one agent can have containers beside virtual
// machines, or host processes beside both. IDs of sandboxes and containers must
// differ from one runtime to the other, as the random ones of real runtimes do.
type Router struct {
	Default runtime.Runtime
	ByClass map[string]runtime.Runtime
}

var _ runtime.Runtime = (*Router)(nil)

// each asks all runtimes, also when one fails.
func (r *Router) each(ask func(rt runtime.Runtime) error) error {
	errs := []error{ask(r.Default)}
	for class, rt := range r.ByClass {
		if err := ask(rt); err != nil {
			errs = append(errs, fmt.Errorf("runtime class %s: %w", class, err))
		}
	}
	return errors.Join(errs...)
}

// ListPods fails if one list does: a list that is not complete looks like pods
// that are gone.
func (r *Router) ListPods(ctx context.Context) (pods []*runtime.Pod, err error) {
	err = r.each(func(rt runtime.Runtime) error {
		some, err := rt.ListPods(ctx)
		pods = append(pods, some...)
		return err
	})
	return pods, err
}

// InspectPod finds the pod wherever it is, since its spec may be gone.
func (r *Router) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	found := &runtime.PodStatus{PodRef: ref}
	err := r.each(func(rt runtime.Runtime) error {
		s, err := rt.InspectPod(ctx, ref)
		if err == nil && len(s.Sandboxes)+len(s.Containers) > 0 {
			found = s
		}
		return err
	})
	return found, err
}

func (r *Router) SyncPod(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	class := req.Pod.Spec.RuntimeClassName
	if class == nil {
		return r.Default.SyncPod(ctx, req)
	}
	rt := r.ByClass[*class]
	if rt == nil {
		return runtime.SyncResult{}, fmt.Errorf("pod %s: no runtime for runtime class %q", runtime.RefOf(req.Pod), *class)
	}
	return rt.SyncPod(ctx, req)
}

// KillPod asks every runtime, with the same status: what one does not know it takes
// for stopped.
func (r *Router) KillPod(ctx context.Context, req runtime.PodKill) error {
	return r.each(func(rt runtime.Runtime) error { return rt.KillPod(ctx, req) })
}

// Exec runs the command where the container is.
func (r *Router) Exec(ctx context.Context, id runtime.ContainerID, cmd []string, timeout time.Duration) (runtime.ExecResult, error) {
	res, err := r.Default.Exec(ctx, id, cmd, timeout)
	for _, rt := range r.ByClass {
		if !errors.Is(err, runtime.ErrNotFound) {
			break
		}
		res, err = rt.Exec(ctx, id, cmd, timeout)
	}
	return res, err
}

// RemoveContainer asks every runtime: removing what is not there succeeds.
func (r *Router) RemoveContainer(ctx context.Context, id runtime.ContainerID) error {
	return r.each(func(rt runtime.Runtime) error { return rt.RemoveContainer(ctx, id) })
}

func (r *Router) RemoveSandbox(ctx context.Context, id string) error {
	return r.each(func(rt runtime.Runtime) error { return rt.RemoveSandbox(ctx, id) })
}

func (r *Router) Check(ctx context.Context) error {
	return r.each(func(rt runtime.Runtime) error { return rt.Check(ctx) })
}
