package prober

import (
	"context"
	"math/rand/v2"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// randomFraction is a number in [0,1).
func randomFraction() float64 { return rand.Float64() }

// Results is where verdicts are sent when they change. The channel is never closed:
// its reader selects on its own context too. A slow reader holds nothing up; it gets
// the latest result of each instance and kind.
func (m *Manager) Results() <-chan runtime.ProbeResult { return m.results }

// send hands results to the reader until ctx ends.
func (m *Manager) send(ctx context.Context) {
	for {
		out, first, key := m.first()
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
			// There may be a newer one in the place of the first.
		case out <- first:
			m.sent(key, first)
		}
	}
}

// first is the result to send next; the channel is nil if there is none.
func (m *Manager) first() (chan<- runtime.ProbeResult, runtime.ProbeResult, resultKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.order) == 0 {
		return nil, runtime.ProbeResult{}, resultKey{}
	}
	key := m.order[0]
	return m.results, m.unsent[key], key
}

// sent drops a result unless it was replaced meanwhile.
func (m *Manager) sent(key resultKey, r runtime.ProbeResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unsent[key] == r {
		delete(m.unsent, key)
		m.order = m.order[1:]
	}
}

// emit has a result sent. It is called with the lock held.
func (m *Manager) emit(r runtime.ProbeResult) {
	key := resultKey{r.ContainerID, r.Kind}
	if _, waits := m.unsent[key]; !waits {
		m.order = append(m.order, key)
	}
	m.unsent[key] = r
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// judge takes in a verdict of a worker, unless that was stopped meanwhile, and
// reports it if it is news.
func (m *Manager) judge(w *worker, id runtime.ContainerID, healthy bool, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[w.ref.UID]
	if p == nil || p.workers[w.key()] != w {
		return
	}
	v := m.verdictOf(w, id)
	news := false
	switch {
	case w.kind == runtime.ReadinessProbe:
		news = v.ready != healthy
		v.ready = healthy
	case !healthy:
		news = v.unhealthy == ""
		v.unhealthy = w.kind
	case w.kind == runtime.StartupProbe:
		news = !v.started
		v.started = true
		p.poke() // the other probes have waited for this
	}
	if !news {
		return
	}
	log := m.log.V(2)
	if !healthy { // why a container is restarted or gets no traffic is for all to see
		log = m.log
	}
	log.Info("Probe verdict", "pod", w.ref, "container", w.container.Name, "containerID", id,
		"probe", w.kind, "healthy", healthy, "message", message)
	m.emit(runtime.ProbeResult{
		Pod: w.ref, Container: w.container.Name, ContainerID: id,
		Kind: w.kind, Healthy: healthy, Message: message,
	})
}

// verdictOf returns the verdict on the instance, a fresh one if there is none. It
// is called with the lock held.
func (m *Manager) verdictOf(w *worker, id runtime.ContainerID) *verdict {
	v := m.verdicts[id]
	if v == nil {
		v = &verdict{uid: w.ref.UID}
		m.verdicts[id] = v
	}
	return v
}

// ended drops what is known of an instance that was replaced, or keeps of one that
// has only exited that it was unhealthy.
func (m *Manager) ended(id runtime.ContainerID, replaced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if replaced {
		delete(m.verdicts, id)
	} else if v := m.verdicts[id]; v != nil {
		v.ready = false
	}
}
