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

	"github.com/kubeletkit/kubeletkit/internal/seconds"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// minGrace is the time between stop signal and kill in seconds, at least, however much
// of the grace period the preStop hook has used; as in kubelet.
const minGrace = 2

// KillPod implements [runtime.Killer]. There is one grace period for the whole pod. It
// starts when KillPod is called, and includes preStop hooks, the exits of containers, and
// the time that sidecars wait for their turn. The time in which a stop waits because too
// many other pods end, see [Options].MaxParallelEnds, is not part of it. The hooks of all
// containers start at once, as in kubelet.
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
	pod, status, override := req.Pod, req.Status, req.GracePeriod
	events := emitter{pod: ref, emit: req.Event, record: req.Record}
	running := slices.DeleteFunc(slices.Clone(status.Containers), func(c runtime.ContainerStatus) bool {
		return c.State != runtime.ContainerRunning && c.State != runtime.ContainerUnknown
	})
	var (
		mu   sync.Mutex
		errs []error
		all  sync.WaitGroup
	)
	var clock graceClock
	turn := make(chan struct{})
	close(turn)
	for _, group := range plan.StopOrder(pod, running) {
		var members sync.WaitGroup
		for i := range group {
			stop := &containerStop{
				ref: ref, pod: pod, status: status, dir: req.Dir, container: &group[i], events: events.container(pod, group[i].Name),
				grace: graceOf(pod, &group[i]), turn: turn, clock: &clock, gate: gate, awaited: req.Awaited, begins: req.GraceBegins,
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

	// Dead sandboxes too: only this releases their network resources.
	leaves := len(errs) == 0 && r.leaves(ctx, &req)
	failed := make([]error, len(status.Sandboxes))
	for i := range status.Sandboxes {
		s := &status.Sandboxes[i]
		if leaves && s.State == runtime.SandboxReady && !r.stopped.has(s.ID) {
			r.left.add(s.ID)
			continue
		}
		all.Go(func() { failed[i] = r.stopSandbox(ctx, "pod "+ref.String(), s.ID, gate, req.Awaited) })
	}
	all.Wait()
	return errors.Join(append(errs, failed...)...)
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
		return runtime.GracePeriod(pod)
	case c.GracePeriod != nil:
		return *c.GracePeriod
	default:
		return runtime.DefaultGracePeriod
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
	// grace is the grace period in seconds, from now by the clock of the pod.
	grace int64
	clock *graceClock
	// atOnce overrides minGrace.
	atOnce bool
	// turn is closed when the stop signal may be sent; nil means at once.
	turn <-chan struct{}
	// gate is that of the call, and awaited is closed when another pod waits for the end of
	// this one; it may be nil.
	gate    *gate
	awaited <-chan struct{}
	// begins is [runtime.PodKill].GraceBegins.
	begins func() int64
	// message of the event. Default: "Stopping container …".
	message string
}

// graceBegins is called when the grace period counts, and may shorten it.
func (s *containerStop) graceBegins() {
	if s.begins != nil && !s.atOnce {
		s.grace = min(s.grace, s.begins())
	}
}

// stopContainer runs the preStop hook, waits for the container's turn and for a place in
// the gate, and stops it. It succeeds if the container does not exist.
func (r *Runtime) stopContainer(ctx context.Context, stop *containerStop) error {
	stop.grace = min(max(stop.grace, -seconds.Max), seconds.Max) // runtimes, too, multiply it
	id, name := stop.container.ID.ID, stop.container.Name
	about := "pod " + stop.ref.String() + ", container " + name
	message := stop.message
	if message == "" {
		message = "Stopping container " + name
	}
	stop.events.normal("Killing", withName(message, id, name))

	began, grace := time.Now(), time.Duration(stop.grace)*time.Second
	if stop.grace > 0 {
		if err := r.preStop(ctx, stop, about, began, grace); err != nil {
			return err
		}
		if stop.turn != nil {
			stop.clock.await(ctx, stop.turn, began, grace)
		}
	}
	place, err := stop.enter(ctx, about)
	if err != nil {
		return err
	}
	defer place.leave()

	// CRI's timeout is in whole seconds; it is rounded up.
	stop.graceBegins()
	rest, _, _ := stop.clock.left(began, time.Duration(stop.grace)*time.Second)
	left := max(0, int64((rest+time.Second-1)/time.Second))
	if !stop.atOnce {
		left = max(left, minGrace)
	}
	rest = time.Duration(left) * time.Second
	place.lend(rest)
	_, err = call(ctx, r, "StopContainer", about, rest, r.rs.StopContainer,
		&criv1.StopContainerRequest{ContainerId: id, Timeout: left})
	err = unlessNotFound(err)
	stop.events.done(ctx, runtime.Record{Kind: runtime.KindStopContainer}, began, err)
	return err
}

// enter waits for a place in the gate. The grace period of the pod stands still meanwhile.
func (s *containerStop) enter(ctx context.Context, about string) (*place, error) {
	s.clock.stop()
	defer s.clock.start()
	place, err := s.gate.enter(ctx, stopContainer, s.awaited)
	if err != nil {
		return nil, fmt.Errorf("%s: stopping it: %w", about, err)
	}
	return place, nil
}

// preStop runs the container's preStop hook until the end of the grace period at most, if it
// has one that has not ended before. The container is stopped even if the hook fails. A hook
// that runs a command has a place in the gate until it only waits for the command, because its
// start costs a runtime as much as a stop. The error is that of ctx.
func (r *Runtime) preStop(ctx context.Context, stop *containerStop, about string, began time.Time, grace time.Duration) error {
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
		return nil
	}
	id, done := stop.container.ID.ID, false
	r.pods.with(stop.ref.UID, func(p *podMemory) { done = p.hooked[id] })
	if done || hookRecorded(stop.dir, preStopDone, stop.container.Name, id) {
		return nil
	}
	left := grace
	if handler.Exec != nil {
		place, err := stop.enter(ctx, about)
		if err != nil {
			return err
		}
		defer place.leave()
		left, _, _ = stop.clock.left(began, grace)
		place.lend(left)
	}
	stop.graceBegins()
	hctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	hookBegan := time.Now()
	err := r.runHook(hctx, &hook{
		about: about, container: id, handler: handler, ports: ports,
		host: hookHost(stop.pod, stop.status.IPs, nil), events: emitter{pod: stop.ref, emit: stop.events.emit},
	})
	if ctx.Err() != nil {
		return nil // the stop fails
	}
	stop.events.done(ctx, runtime.Record{Kind: runtime.KindPreStop, Error: hookFailure(err)}, hookBegan, err)
	r.pods.with(stop.ref.UID, func(p *podMemory) { p.hooked[id] = true })
	r.recordHook(stop.dir, preStopDone, stop.container.Name, id)
	switch {
	case hctx.Err() != nil:
		r.opts.Logger.V(1).Info("PreStop hook did not end within the grace period", "pod", stop.ref, "container", stop.container.Name)
	case err != nil:
		// The output of the hook may be secret: it is in the log, but not in the event.
		r.opts.Logger.Error(err, "PreStop hook failed", "pod", stop.ref, "container", stop.container.Name)
		stop.events.warning("FailedPreStopHook", "PreStopHook failed")
	}
	return nil
}
