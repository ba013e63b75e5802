package prober

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// worker runs one probe of one container in a goroutine of its own.
type worker struct {
	m   *Prober
	ref ProbeRef
	log logr.Logger

	// pod and probe are as AddPod was last given them. They are guarded by Prober.mu.
	pod   *v1.Pod
	probe probe

	// wake holds a token if the status is to be looked at. A second token would mean
	// the same.
	wake flow.Signal
	// quit is closed by stop, under Prober.mu.
	quit chan struct{}

	// tracker belongs to the goroutine.
	tracker tracker
}

// newWorker is called with the lock held.
func newWorker(m *Prober, pod *v1.Pod, key workerKey, p probe) *worker {
	ref := ProbeRef{runtime.RefOf(pod), key.container, key.kind}
	return &worker{
		m: m, ref: ref, pod: pod, probe: p,
		log:     m.log.WithValues("pod", ref.Pod, "container", ref.Container, "probe", ref.Kind),
		wake:    flow.NewSignal(),
		quit:    make(chan struct{}),
		tracker: tracker{kind: key.kind, settings: settingsOf(p.spec)},
	}
}

func (w *worker) key() workerKey { return workerKey{w.ref.Container, w.ref.Kind} }

// stop ends the worker. It is called once.
func (w *worker) stop() { close(w.quit) }

// launch starts the worker while Run runs. It is called with the lock held.
func (m *Prober) launch(w *worker) {
	if m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	ctx := m.ctx
	m.running[w] = struct{}{}
	m.workers.Go(func() {
		defer m.ended(w)
		w.run(ctx)
	})
}

// ended is called when the goroutine of a worker ends.
func (m *Prober) ended(w *worker) {
	defer m.afterUnlock.Run()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, w)
	if p := m.pods[w.ref.Pod.UID]; p == nil || p.workers[w.key()] == nil {
		// before what a worker reports that is added from now on
		m.measured(ProbeRemoved{w.ref})
	}
}

// measured queues a measurement, which is passed on by the next Run of afterUnlock.
func (m *Prober) measured(v runtime.Measurement) {
	if m.observer.Measure != nil {
		m.afterUnlock.Add(func() { m.observer.Measure(v) })
	}
}

func (w *worker) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, ok, _ := w.look()
		timer.Stop()
		if ok {
			timer.Reset(time.Until(due))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.quit:
			return
		case <-w.wake:
		case <-timer.C:
			w.attempt(ctx)
		}
	}
}

// current returns the pod and the probe as they were last added, and since when the
// manager has been running.
func (w *worker) current() (pod *v1.Pod, p probe, since time.Time) {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	return w.pod, w.probe, w.m.since
}

// look has the tracker observe the cached status. It returns the time of the next
// attempt, if there is one, and the pod's addresses.
func (w *worker) look() (due time.Time, ok bool, ips []string) {
	_, p, since := w.current()
	o := observation{now: time.Now()}
	if status, known := w.m.status.Get(w.ref.Pod.UID); known {
		o.instance, ips = status.Newest(w.ref.Container), status.IPs
	}
	before := w.tracker.id
	if o.instance != nil {
		o.started = !p.startup || w.m.Started(o.instance.ID)
		if w.tracker.due.IsZero() || o.instance.ID != before {
			o.jitter = w.jitter(o.instance, since, o.now)
		}
	}
	due, ok = w.tracker.observe(o)
	switch {
	case w.tracker.id != before && !before.IsZero():
		w.m.replaced(before)
	case o.instance != nil && o.instance.State != runtime.ContainerRunning:
		w.m.exited(o.instance.ID)
	}
	return due, ok, ips
}

// jitter is for instances that were there before the manager ran, as long as that
// was less than a period ago.
func (w *worker) jitter(inst *runtime.ContainerStatus, since, now time.Time) float64 {
	if inst.StartedAt.Before(since) && now.Sub(since) < w.tracker.period {
		return w.m.jitter()
	}
	return 0
}

// attempt makes one attempt and takes in its outcome. It ends early when the
// instance ends or the worker is stopped.
func (w *worker) attempt(ctx context.Context) {
	due, ok, ips := w.look()
	if !ok || due.After(time.Now()) {
		return // something has changed since the timer was set
	}
	began := time.Now()
	w.tracker.begin(began)
	pod, p, _ := w.current()
	t := Target{
		Pod:         pod,
		Container:   p.container,
		ContainerID: w.tracker.id,
		Kind:        w.ref.Kind,
		Probe:       p.spec,
		Timeout:     w.tracker.timeout,
		Address:     podAddress(pod, ips, w.m.hostAddress()),
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		outcome Outcome
		message string
		err     error
		done    = make(chan struct{})
	)
	go func() {
		defer close(done)
		outcome, message, err = p.handler.attempt(ctx, t)
	}()
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		case <-w.quit:
			cancel()
			<-done
			return
		case <-w.wake:
			if _, ok, _ := w.look(); !ok || w.tracker.id != t.ContainerID {
				cancel()
				<-done
				w.wake.Notify() // the reason for waking up is not dealt with yet
				return
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	if outcome != Success && strings.TrimSpace(message) == "" { // of a handler of one's own
		message = "no output"
	}
	w.report(t, outcome, message, err)
	w.m.measured(Attempt{w.ref, outcome, time.Since(began)})
	w.m.afterUnlock.Run()
	if err != nil {
		return
	}
	if healthy, ok := w.tracker.record(outcome != Failure); ok {
		w.m.set(w, t.ContainerID, healthy, message)
	}
}

// report logs an attempt that did not simply succeed, and makes an event of it with
// kubelet's reason and text.
func (w *worker) report(t Target, outcome Outcome, message string, err error) {
	event := runtime.Event{
		Pod:       w.ref.Pod,
		FieldPath: runtime.FieldPath(t.Pod, w.ref.Container),
		Type:      v1.EventTypeWarning,
		Reason:    "Unhealthy",
	}
	kind := strings.ToUpper(string(t.Kind[:1])) + string(t.Kind[1:])
	switch log := w.log.V(1); {
	case errors.Is(err, runtime.ErrNotFound):
		log.Info("Probe was not made, since its container has ended", "err", err.Error())
		return
	case err != nil:
		log.Info("Probe could not be made", "err", err.Error())
		event.Message = fmt.Sprintf("%s probe errored and resulted in %s state: %s", kind, outcome, err)
	case outcome == Failure:
		log.Info("Probe failed", "output", message)
		event.Message = fmt.Sprintf("%s probe failed: %s", kind, message)
	case outcome == Warning:
		event.Reason = "ProbeWarning"
		event.Message = fmt.Sprintf("%s probe warning: %s", kind, message)
	default:
		return
	}
	w.m.observer.Event.Emit(event)
}
