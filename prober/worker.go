package prober

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// worker runs one probe of one container in a goroutine of its own.
type worker struct {
	m         *Manager
	ref       runtime.PodRef
	pod       *v1.Pod
	container *v1.Container
	kind      runtime.ProbeKind

	// wake holds a token when the status is to be looked at; when it is full it is going
	// to be already.
	wake chan struct{}
	// quit is closed by stop, under Manager.mu.
	quit chan struct{}

	// course belongs to the goroutine.
	course course
}

func newWorker(m *Manager, pod *v1.Pod, c *v1.Container, kind runtime.ProbeKind) *worker {
	return &worker{
		m: m, ref: runtime.RefOf(pod), pod: pod, container: c, kind: kind,
		wake:   make(chan struct{}, 1),
		quit:   make(chan struct{}),
		course: course{kind: kind, settings: settingsOf(runtime.SpecProbe(c, kind))},
	}
}

func (w *worker) key() workerKey { return workerKey{w.container.Name, w.kind} }

// stop has the worker end. It is called once.
func (w *worker) stop() { close(w.quit) }

// poke has the worker look at the status.
func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// launch starts the worker if Run runs. It is called with the lock held.
func (m *Manager) launch(w *worker) {
	if m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	ctx := m.ctx
	m.workers.Go(func() { w.run(ctx) })
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

// look brings the course up to date with the cached status, and returns the time
// of the next attempt, if there is one, and the pod's addresses.
func (w *worker) look() (due time.Time, ok bool, ips []string) {
	v := view{now: time.Now()}
	if status, known := w.m.status.Get(w.ref.UID); known {
		v.instance, ips = status.Newest(w.container.Name), status.IPs
	}
	before := w.course.id
	if v.instance != nil {
		v.started = w.container.StartupProbe == nil || w.m.Started(v.instance.ID)
		if w.course.due.IsZero() || v.instance.ID != before {
			v.jitter = w.m.jitterFor(v.instance, w.course.period, v.now)
		}
	}
	due, ok = w.course.follow(v)
	switch {
	case w.course.id != before && !before.IsZero():
		w.m.ended(before, true)
	case v.instance != nil && v.instance.State != runtime.ContainerRunning:
		w.m.ended(v.instance.ID, false)
	}
	return due, ok, ips
}

// jitterFor is for instances that were there before the manager ran, as long as that
// was less than a period ago.
func (m *Manager) jitterFor(inst *runtime.ContainerStatus, period time.Duration, now time.Time) float64 {
	m.mu.Lock()
	since := m.since
	m.mu.Unlock()
	if inst.StartedAt.Before(since) && now.Sub(since) < period {
		return m.jitter()
	}
	return 0
}

// attempt makes one check and has its outcome judged. It ends early when the
// instance does, or the worker.
func (w *worker) attempt(ctx context.Context) {
	due, ok, ips := w.look()
	if !ok || due.After(time.Now()) {
		return // things have changed since the timer was set
	}
	id := w.course.id
	w.course.begin(time.Now())
	t := target{
		container: w.container,
		probe:     runtime.SpecProbe(w.container, w.kind),
		id:        id,
		host:      podAddress(w.pod, ips, w.m.hostIP),
		timeout:   w.course.timeout,
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		success bool
		output  string
		err     error
		done    = make(chan struct{})
	)
	go func() {
		defer close(done)
		success, output, err = w.m.check.check(ctx, t)
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
			if _, ok, _ := w.look(); !ok || w.course.id != id {
				cancel()
				<-done
				w.poke() // what woke us is not dealt with yet
				return
			}
		}
	}

	switch log := w.m.log.V(1); {
	case ctx.Err() != nil:
		return
	case err != nil:
		log.Info("Probe could not be made", "pod", w.ref, "container", w.container.Name, "probe", w.kind, "err", err.Error())
		return
	case !success:
		log.Info("Probe failed", "pod", w.ref, "container", w.container.Name, "probe", w.kind, "output", output)
	}
	if verdict, ok := w.course.record(success); ok {
		w.m.judge(w, id, verdict, output)
	}
}
