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

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/underway"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// minGrace is the time between stop signal and kill in seconds, at least, however much
// of the grace period the preStop hook has used; as in kubelet.
const minGrace = 2

// KillPod implements [runtime.Runtime]. There is one grace period for the whole pod. It
// includes preStop hooks, the exits of containers, and the time that sidecars wait for the
// containers that are stopped before them. It starts when KillPod is called or, if too many
// other pods end, when the pod has waited for some of them, see [Options].MaxParallelEnds. The hooks of all
// containers start at once. A container whose hook does not end gets the stop signal at the end of
// the grace period, and is killed 2 s later; until then the hook goes on. All this is as in kubelet.
//
// A later call does not run a preStop hook again that has ended, but one that was cut
// off when ctx ended. CRI runtimes send the stop signal once.
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
	if err := r.stopPod(ctx, req, ref, r.ends); err != nil {
		return err
	}
	r.pods.forget(ref.UID)
	return nil
}

// stopPod stops all containers of the status that may run, in their order, and
// then all sandboxes.
func (r *Runtime) stopPod(ctx context.Context, req runtime.PodKill, ref runtime.PodRef, gate *gate) error {
	about := "pod " + ref.String()
	errs := r.stopContainers(ctx, req, ref, gate)
	if ctx.Err() != nil {
		return errors.Join(append(errs, fmt.Errorf("%s: stopping it: %w", about, flow.Ended(ctx)))...)
	}
	// Dead sandboxes too: only this releases their network resources.
	leave := len(errs) == 0 && req.Removed && req.Pod != nil && !hasHostPorts(req.Pod) && r.index.watched()
	var all sync.WaitGroup
	failed := make([]error, len(req.Status.Sandboxes))
	for i := range req.Status.Sandboxes {
		s := &req.Status.Sandboxes[i]
		if leave && s.State == runtime.SandboxReady && !r.stopped.has(s.ID) {
			r.left.add(s.ID)
			continue
		}
		all.Go(func() { failed[i] = r.stopSandbox(ctx, about, s.ID, gate) })
	}
	all.Wait()
	return errors.Join(append(errs, failed...)...)
}

// stopContainers stops the containers of a pod, in their order. It waits while too many
// containers of other pods are being stopped.
func (r *Runtime) stopContainers(ctx context.Context, req runtime.PodKill, ref runtime.PodRef,
	gate *gate) (errs []error) {
	pod, status, override := req.Pod, req.Status, req.GracePeriod
	events := emitter{pod: ref, emit: req.Event, record: req.Record}
	running := slices.DeleteFunc(slices.Clone(status.Containers), func(c runtime.ContainerStatus) bool {
		return c.State != runtime.ContainerRunning && c.State != runtime.ContainerUnknown
	})
	if len(running) == 0 {
		return nil
	}
	var grace int64
	for i := range running {
		grace = max(grace, graceOf(pod, &running[i]))
	}
	if override != nil {
		grace = *override
	}
	leave, err := gate.enter(ctx, first, stopSteps(len(running), podspec.Seconds(grace))...)
	if err != nil {
		return nil // the error of ctx
	}
	defer leave()
	var (
		began = time.Now()
		mu    sync.Mutex
		all   sync.WaitGroup
	)
	mayStop := make(chan struct{})
	close(mayStop)
	for _, group := range plan.StopOrder(pod, running) {
		var members sync.WaitGroup
		for i := range group {
			stop := &containerStop{
				ref: ref, pod: pod, status: status, dir: req.Dir, container: &group[i],
				events: events.container(pod, group[i].Name),
				grace:  graceOf(pod, &group[i]), began: began, mayStop: mayStop,
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
		// The next group is stopped when this one and all before it have ended.
		before, next := mayStop, make(chan struct{})
		all.Go(func() {
			defer close(next)
			members.Wait()
			<-before
		})
		mayStop = next
	}
	all.Wait()
	return errs
}

// withName replaces the ID of a container in a text by its name, so that equal events can be
// counted. IDs are from the runtime: a short one may be found anywhere.
func withName(text, id, name string) string {
	if len(id) < minID {
		return text
	}
	return strings.ReplaceAll(text, id, name)
}

// minID is the length of an ID that is not found in a text by chance. IDs of runtimes have
// 32 hexadecimal digits or more.
const minID = 16

// graceOf returns the grace period of a container in seconds: its pod's, or the one that
// was recorded when it was created.
func graceOf(pod *v1.Pod, c *runtime.ContainerStatus) int64 {
	switch {
	case pod != nil:
		return podspec.GracePeriod(pod)
	case c.GracePeriod != nil:
		return *c.GracePeriod
	default:
		return podspec.DefaultGracePeriod
	}
}

// containerStop is a container to stop.
type containerStop struct {
	ref       runtime.PodRef
	pod       *v1.Pod // may be nil
	status    *runtime.PodStatus
	container *runtime.ContainerStatus
	dir       string // of the pod; may be empty
	// events emits events about the container.
	events emitter
	// grace is the grace period in seconds, from began on.
	grace int64
	began time.Time
	// atOnce overrides minGrace.
	atOnce bool
	// mayStop is closed when the stop signal may be sent; nil means at once.
	mayStop <-chan struct{}
	// message of the event. Default: "Stopping container …".
	message string
}

// stopContainer runs the preStop hook, waits until the signal may be sent, and stops the container.
// It succeeds if the container does not exist.
func (r *Runtime) stopContainer(ctx context.Context, stop *containerStop) error {
	stop.grace = min(max(stop.grace, -podspec.MaxSeconds), podspec.MaxSeconds) // runtimes, too, multiply it
	id, name := stop.container.ID.ID, stop.container.Name
	about := "pod " + stop.ref.String() + ", container " + name
	message := stop.message
	if message == "" {
		message = "Stopping container " + name
	}
	stop.events.normal("Killing", withName(message, id, name))

	end := stop.began.Add(time.Duration(stop.grace) * time.Second)
	if stop.grace > 0 {
		gctx, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		defer r.preStop(ctx, gctx, stop, about)()
		if stop.mayStop != nil {
			select {
			case <-stop.mayStop:
			case <-gctx.Done():
			}
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: stopping it: %w", about, flow.Ended(ctx))
	}
	// CRI's timeout is in whole seconds; it is rounded up.
	left := max(0, int64((time.Until(end)+time.Second-1)/time.Second))
	if !stop.atOnce {
		left = max(left, minGrace)
	}
	_, err := call(ctx, r, "StopContainer", about, time.Duration(left)*time.Second, r.rs.StopContainer,
		&criv1.StopContainerRequest{ContainerId: id, Timeout: left})
	err = unlessNotFound(err)
	stop.events.done(ctx, runtime.Record{Kind: runtime.KindStopContainer}, stop.began, err)
	return err
}

// preStop runs the container's preStop hook, if it has one that has not ended before, until the hook
// or the grace period ends, which is the end of grace. A hook that has not ended then goes on until
// the caller calls cut, which waits for its end. The container is stopped even if the hook fails.
func (r *Runtime) preStop(ctx, grace context.Context, stop *containerStop, about string) (cut func()) {
	handler, ports := stop.container.PreStop, stop.container.Ports
	if stop.pod != nil {
		if c, _ := podspec.FindContainer(&stop.pod.Spec, stop.container.Name); c != nil {
			handler, ports = nil, c.Ports
			if c.Lifecycle != nil {
				handler = c.Lifecycle.PreStop
			}
		}
	}
	cut = func() {}
	if handler == nil {
		return cut
	}
	id, done := stop.container.ID.ID, false
	r.pods.with(stop.ref.UID, func(p *podMemory) { done = p.hooked[id] })
	if done || hookRecorded(stop.dir, preStopDone, stop.container.Name, id) {
		return cut
	}
	began := time.Now()
	call := underway.Begin(ctx, stop.container.Name, "preStop hook of container", stop.container.Name)
	defer call.End()
	hctx, cancel := context.WithCancel(call)
	ended := make(chan error, 1) // the hook's error, once
	go func() {
		ended <- r.runHook(hctx, &hook{
			about: about, container: id, handler: handler, ports: ports,
			host: hookHost(stop.pod, stop.status.IPs, nil), events: emitter{pod: stop.ref, emit: stop.events.emit},
		})
	}()
	var err error
	select {
	case err = <-ended:
		cancel()
	case <-grace.Done():
		err, cut = flow.Ended(grace), func() { cancel(); <-ended }
	}
	if ctx.Err() != nil {
		return cut // the stop fails
	}
	stop.events.done(ctx, runtime.Record{Kind: runtime.KindPreStop, Error: hookFailure(err)}, began, err)
	r.pods.with(stop.ref.UID, func(p *podMemory) { p.hooked[id] = true })
	r.recordHook(stop.dir, preStopDone, stop.container.Name, id)
	switch {
	case grace.Err() != nil:
		r.opts.Logger.V(1).Info("PreStop hook did not end within the grace period", "pod", stop.ref,
			"container", stop.container.Name)
	case err != nil:
		// The output of the hook may be secret: it is in the log, but not in the event.
		r.opts.Logger.Error(err, "PreStop hook failed", "pod", stop.ref, "container", stop.container.Name)
		stop.events.logged("FailedPreStopHook", "PreStopHook failed")
	}
	return cut
}
