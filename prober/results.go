package prober

import (
	"context"
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Results implements [Manager].
func (m *Prober) Results() <-chan runtime.ProbeResult { return m.results }

// send hands results to the reader until ctx ends.
func (m *Prober) send(ctx context.Context) {
	for {
		out, first, key := m.first()
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
			// The first may have been replaced by a newer one.
		case out <- first:
			m.sent(key, first)
		}
	}
}

// first returns the result to send next. The channel is nil if there is none.
func (m *Prober) first() (chan<- runtime.ProbeResult, runtime.ProbeResult, resultKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.order) == 0 {
		return nil, runtime.ProbeResult{}, resultKey{}
	}
	key := m.order[0]
	return m.results, m.unsent[key], key
}

// sent drops a result unless it was replaced meanwhile.
func (m *Prober) sent(key resultKey, r runtime.ProbeResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unsent[key] == r {
		delete(m.unsent, key)
		m.order = m.order[1:]
	}
}

// enqueue has a result sent.
func (m *Prober) enqueue(r runtime.ProbeResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := resultKey{r.ContainerID, r.Kind}
	if _, waits := m.unsent[key]; !waits {
		m.order = append(m.order, key)
	}
	m.unsent[key] = r
	m.wake.Notify()
}

// set takes in what a worker has found about an instance, unless the worker was
// stopped meanwhile. A change becomes a result.
func (m *Prober) set(w *worker, id runtime.ContainerID, healthy bool, message string) {
	defer m.afterUnlock.Run()
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[w.ref.Pod.UID]
	if p == nil || p.workers[w.key()] != w {
		return
	}
	s := m.states[id]
	if s == nil {
		s = &state{uid: w.ref.Pod.UID}
		m.states[id] = s
	}
	changed := false
	switch {
	case w.ref.Kind == runtime.ReadinessProbe:
		changed = s.ready != healthy
		s.ready = healthy
	case !healthy:
		changed = s.unhealthy == ""
		s.unhealthy = w.ref.Kind
	case w.ref.Kind == runtime.StartupProbe:
		changed = !s.started
		s.started = true
		p.wake() // the other probes have waited for this
	}
	if !changed {
		return
	}
	log := w.log.V(2)
	if !healthy { // the reason why a container is restarted or gets no traffic
		log = w.log
	}
	m.afterUnlock.Add(func() { // the record first, then what follows from the result
		if m.keep != nil && (healthy || w.ref.Kind == runtime.ReadinessProbe) { // whether it is unhealthy is not kept
			m.keep.KeepState(stateName, results{m})
		}
		log.Info("Probe result changed", "containerID", id, "healthy", healthy, "message", message)
		m.recordResult(w.ref, healthy, message)
		m.enqueue(runtime.ProbeResult{
			Pod: w.ref.Pod, Container: w.ref.Container, ContainerID: id,
			Kind: w.ref.Kind, Healthy: healthy, Message: message,
		})
	})
}

// recordResult records a change of a result. The output of a probe that succeeds is of no
// interest.
func (m *Prober) recordResult(ref ProbeRef, healthy bool, message string) {
	if m.observer.Record == nil {
		return
	}
	kind := string(ref.Kind)
	r := runtime.Record{
		Pod: ref.Pod, Stage: runtime.StageDecided, Kind: runtime.KindProbe, Container: ref.Container,
		Reason: strings.ToUpper(kind[:1]) + kind[1:],
	}
	if !healthy {
		r.Error = message
	}
	m.observer.Record(r)
}

// replaced drops what is known of an instance, since there is a newer one.
func (m *Prober) replaced(id runtime.ContainerID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.states, id)
}

// exited makes an instance unready. That it was unhealthy stays known until it is
// replaced.
func (m *Prober) exited(id runtime.ContainerID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.states[id]; s != nil {
		s.ready = false
	}
}
