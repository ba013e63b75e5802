package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Router is a runtime that consists of several: a pod runs on the one of its runtime
// class, or on the default. So one agent can run containers, virtual machines and host
// processes. The IDs of sandboxes and containers must be unique across the runtimes, as
// the random IDs of real runtimes are.
type Router struct {
	Default runtime.Runtime
	ByClass map[string]runtime.Runtime
}

var _ runtime.Runtime = (*Router)(nil)

// each calls all runtimes, also when one fails, and joins the errors.
func (r *Router) each(call func(rt runtime.Runtime) error) error {
	errs := []error{call(r.Default)}
	for class, rt := range r.ByClass {
		if err := call(rt); err != nil {
			errs = append(errs, fmt.Errorf("runtime class %s: %w", class, err))
		}
	}
	return errors.Join(errs...)
}

// ListPods fails if one list fails: pods that are missing in a list count as removed.
func (r *Router) ListPods(ctx context.Context) (pods []*runtime.Pod, err error) {
	err = r.each(func(rt runtime.Runtime) error {
		some, err := rt.ListPods(ctx)
		pods = append(pods, some...)
		return err
	})
	return pods, err
}

// InspectPod looks for the pod in all runtimes, since its spec may not be known any more.
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

// SyncPod calls the runtime of the pod's class.
func (r *Router) SyncPod(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	class := req.Pod.Spec.RuntimeClassName
	if class == nil {
		return r.Default.SyncPod(ctx, req)
	}
	rt := r.ByClass[*class]
	if rt == nil {
		return runtime.SyncResult{}, fmt.Errorf("pod %s: no runtime for runtime class %q", runtime.RefOf(req.Pod),
			*class)
	}
	return rt.SyncPod(ctx, req)
}

// KillPod calls every runtime with the same status. A runtime treats sandboxes and
// containers that it does not have as stopped.
func (r *Router) KillPod(ctx context.Context, req runtime.PodKill) error {
	return r.each(func(rt runtime.Runtime) error { return rt.KillPod(ctx, req) })
}

// Exec runs the command in the runtime that has the container.
func (r *Router) Exec(ctx context.Context, id runtime.ContainerID, cmd []string,
	timeout time.Duration) (runtime.ExecResult, error) {
	res, err := r.Default.Exec(ctx, id, cmd, timeout)
	for _, rt := range r.ByClass {
		if !errors.Is(err, runtime.ErrNotFound) {
			break
		}
		res, err = rt.Exec(ctx, id, cmd, timeout)
	}
	return res, err
}

// RemoveContainer calls every runtime: removing a container that does not exist succeeds.
func (r *Router) RemoveContainer(ctx context.Context, id runtime.ContainerID) error {
	return r.each(func(rt runtime.Runtime) error { return rt.RemoveContainer(ctx, id) })
}

// RemoveSandbox calls every runtime.
func (r *Router) RemoveSandbox(ctx context.Context, id string) error {
	return r.each(func(rt runtime.Runtime) error { return rt.RemoveSandbox(ctx, id) })
}

// Check fails if one runtime is not ready.
func (r *Router) Check(ctx context.Context) error {
	return r.each(func(rt runtime.Runtime) error { return rt.Check(ctx) })
}
