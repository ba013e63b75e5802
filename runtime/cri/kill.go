package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// minGrace is what a container gets to end in, in seconds, however much of its
// grace period its preStop hook has used up; as in kubelet.
const minGrace = 2

// KillPod implements [runtime.Killer]. The grace period is one for the whole pod:
// it starts when KillPod is called, and preStop hooks, the containers' own ending
// and the wait of sidecars for their turn are all inside of it. The hooks of all
// containers start at once, as with kubelet.
//
// A preStop hook that has ended is not run again by a later call, one that was cut
// off by the end of ctx is; CRI runtimes themselves send the stop signal once.
func (r *Runtime) KillPod(ctx context.Context, req runtime.PodKill) error {
	var ref runtime.PodRef
	switch {
	case req.Pod != nil:
		ref = runtime.RefOf(req.Pod)
	case req.Status != nil:
		ref = req.Status.PodRef
	default:
		return errors.New("KillPod: a pod or its status is required")
	}
	if req.Status == nil {
		status, err := r.InspectPod(ctx, ref)
		if err != nil {
			return err
		}
		req.Status = status
	}
	if err := r.stopPod(ctx, req, ref); err != nil {
		return err
	}
	r.pods.forget(ref.UID)
	return nil
}

// stopPod stops all containers of the status that may run, in their order, and
// then all sandboxes.
func (r *Runtime) stopPod(ctx context.Context, req runtime.PodKill, ref runtime.PodRef) error {
	pod, status, override := req.Pod, req.Status, req.GracePeriod
	events := emitter{pod: ref, emit: req.Event}
	running := slices.DeleteFunc(slices.Clone(status.Containers), func(c runtime.ContainerStatus) bool {
		return c.State != runtime.ContainerRunning && c.State != runtime.ContainerUnknown
	})
	var (
		mu   sync.Mutex
		errs []error
		all  sync.WaitGroup
	)
	turn := make(chan struct{})
	close(turn)
	for _, group := range plan.StopOrder(pod, running) {
		var members sync.WaitGroup
		for i := range group {
			stop := &containerStop{
				ref: ref, pod: pod, status: status, container: &group[i], events: events.container(pod, group[i].Name),
				grace: graceOf(pod, &group[i]), turn: turn,
			}
			if override != nil {
				stop.grace, stop.atOnce = *override, *override <= 0
			}
			members.Go(func() {
				if err := r.stopContainer(ctx, stop); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				}
			})
		}
		// The next group has its turn when this one and all before it have ended.
		before, next := turn, make(chan struct{})
		all.Go(func() {
			defer close(next)
			members.Wait()
			<-before
		})
		turn = next
	}
	all.Wait()
	if ctx.Err() != nil {
		return errors.Join(append(errs, fmt.Errorf("pod %s: stopping it: %w", ref, ended(ctx)))...)
	}

	// Dead sandboxes too: what they hold of the network is given back only now.
	failed := make([]error, len(status.Sandboxes))
	for i := range status.Sandboxes {
		all.Go(func() { failed[i] = r.stopSandbox(ctx, "pod "+ref.String(), status.Sandboxes[i].ID) })
	}
	all.Wait()
	return errors.Join(append(errs, failed...)...)
}

// stopSandbox stops a sandbox. Callers who name the same one at the same time share
// one call: of two, containerd lets one fail, as its network can be taken down once.
func (r *Runtime) stopSandbox(ctx context.Context, about, id string) error {
	return r.stops.do(ctx, about, id, func() error {
		_, err := call(ctx, r, "StopPodSandbox", about, 0, r.rs.StopPodSandbox, &criv1.StopPodSandboxRequest{PodSandboxId: id})
		return unlessNotFound(err)
	})
}

// graceOf is the grace period of a container, in seconds: its pod's, or what was
// recorded when it was made.
func graceOf(pod *v1.Pod, c *runtime.ContainerStatus) int64 {
	switch {
	case pod != nil:
		return runtime.GracePeriod(pod)
	case c.GracePeriod != nil:
		return *c.GracePeriod
	default:
		return runtime.DefaultGracePeriod
	}
}

// containerStop is a container to be stopped.
type containerStop struct {
	ref       runtime.PodRef
	pod       *v1.Pod // may be nil
	status    *runtime.PodStatus
	container *runtime.ContainerStatus
	// events emits events about the container.
	events emitter
	// grace in seconds, counted from the beginning.
	grace int64
	// atOnce leaves out even the least grace.
	atOnce bool
	// turn is closed when the stop signal may be sent; nil means at once.
	turn <-chan struct{}
	// message for the event; there is a default.
	message string
}

// stopContainer runs the preStop hook, waits for the container's turn, and stops it.
// It succeeds if the container is gone.
func (r *Runtime) stopContainer(ctx context.Context, stop *containerStop) error {
	id, name := stop.container.ID.ID, stop.container.Name
	about := "pod " + stop.ref.String() + ", container " + name
	message := stop.message
	if message == "" {
		message = "Stopping container " + name
	}
	stop.events.normal("Killing", strings.ReplaceAll(message, id, name))

	deadline := time.Now().Add(time.Duration(stop.grace) * time.Second)
	if stop.grace > 0 {
		r.preStop(ctx, stop, about, deadline)
		awaitTurn(ctx, stop.turn, deadline)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: stopping it: %w", about, ended(ctx))
	}

	// CRI counts in whole seconds; one that has begun is not taken away.
	left := max(0, int64((time.Until(deadline)+time.Second-1)/time.Second))
	if !stop.atOnce {
		left = max(left, minGrace)
	}
	_, err := call(ctx, r, "StopContainer", about, time.Duration(left)*time.Second, r.rs.StopContainer,
		&criv1.StopContainerRequest{ContainerId: id, Timeout: left})
	return unlessNotFound(err)
}

// awaitTurn returns when it is the container's turn, or the grace period is over.
func awaitTurn(ctx context.Context, turn <-chan struct{}, deadline time.Time) {
	if turn == nil {
		return
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-turn:
	case <-t.C:
	case <-ctx.Done():
	}
}

// preStop runs the container's hook, if it has one that was not run yet, for no
// longer than until the deadline. That a hook fails does not keep its container from
// being stopped.
func (r *Runtime) preStop(ctx context.Context, stop *containerStop, about string, deadline time.Time) {
	handler, ports := stop.container.PreStop, stop.container.Ports
	if stop.pod != nil {
		if c, _ := runtime.FindContainer(&stop.pod.Spec, stop.container.Name); c != nil {
			handler, ports = nil, c.Ports
			if c.Lifecycle != nil {
				handler = c.Lifecycle.PreStop
			}
		}
	}
	if handler == nil {
		return
	}
	id, done := stop.container.ID.ID, false
	r.pods.with(stop.ref.UID, func(p *podMemory) { done = p.hooked[id] })
	if done {
		return
	}
	hctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := r.runHook(hctx, &hook{
		about: about, container: id, handler: handler, ports: ports,
		host: hookHost(stop.pod, stop.status.IPs, nil),
	})
	if ctx.Err() != nil {
		return
	}
	r.pods.with(stop.ref.UID, func(p *podMemory) { p.hooked[id] = true })
	switch {
	case hctx.Err() != nil:
		r.opts.Logger.V(1).Info("PreStop hook did not end within the grace period", "pod", stop.ref, "container", stop.container.Name)
	case err != nil:
		// What the hook has said may be secret: it is logged, and not in the event.
		r.opts.Logger.Error(err, "PreStop hook failed", "pod", stop.ref, "container", stop.container.Name)
		stop.events.warning("FailedPreStopHook", "PreStopHook failed")
	}
}
