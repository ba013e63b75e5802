package status

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Run delivers statuses until ctx ends, then waits for the deliveries under way and
// returns nil. What is undelivered by then stays so. A second call returns
// [runtime.ErrAlreadyRunning].
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	again := m.started
	m.started = true
	m.mu.Unlock()
	if again {
		return runtime.ErrAlreadyRunning
	}
	if m.sink == nil {
		<-ctx.Done()
		return nil
	}

	var deliveries sync.WaitGroup
	defer deliveries.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		for job, ok := m.next(time.Now()); ok; job, ok = m.next(time.Now()) {
			deliveries.Go(func() {
				err := m.sink.Deliver(ctx, job.pod, *job.status)
				m.done(job, err, time.Now())
			})
		}
		timer.Stop()
		if at, ok := m.nextRetry(); ok {
			timer.Reset(time.Until(at))
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-timer.C:
		}
	}
	return nil
}

// job is one delivery.
type job struct {
	uid     types.UID
	pod     *v1.Pod
	status  *v1.PodStatus
	version uint64
}

// next takes the pod that is to be delivered now, if there is one and a place for
// it.
func (m *Manager) next(now time.Time) (job, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inFlight >= m.limit {
		return job{}, false
	}
	for uid, r := range m.retries {
		if !r.retry.After(now) {
			delete(m.retries, uid)
			m.enqueue(uid, r)
		}
	}
	if len(m.queue) == 0 {
		return job{}, false
	}
	uid := m.queue[0]
	m.queue = slices.Delete(m.queue, 0, 1)
	r := m.pods[uid]
	r.stage = delivering
	m.inFlight++
	return job{uid: uid, pod: r.pod, status: r.out, version: r.version}, true
}

// nextRetry is when the first pod has waited long enough. With all places taken
// there is none: the end of a delivery wakes the loop.
func (m *Manager) nextRetry() (at time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inFlight >= m.limit {
		return at, false
	}
	for _, r := range m.retries {
		if !ok || r.retry.Before(at) {
			at, ok = r.retry, true
		}
	}
	return at, ok
}

// done takes in the outcome of a delivery.
func (m *Manager) done(j job, err error, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight--
	m.poke()

	// A record stays while its stage is delivering, so it is the one of the job.
	r := m.pods[j.uid]
	r.stage = idle
	switch {
	case err == nil || errors.Is(err, ErrGone):
		r.delivered, r.failures = j.version, 0
		if err != nil {
			m.log.V(2).Info("Pod is gone, its status is not delivered", "pod", runtime.RefOf(j.pod))
		}
	case r.status == nil && r.version == j.version:
		m.log.Error(err, "Last status of a forgotten pod was not delivered", "pod", runtime.RefOf(j.pod))
		r.delivered = j.version
	default:
		delay := m.backoff(r.failures)
		r.failures++
		r.retry = now.Add(delay)
		r.stage = backingOff
		m.retries[j.uid] = r
		m.log.Error(err, "Status was not delivered, trying again", "pod", runtime.RefOf(j.pod), "after", delay, "failures", r.failures)
		return
	}
	switch {
	case r.delivered < r.version:
		m.enqueue(j.uid, r)
	case r.status == nil:
		delete(m.pods, j.uid)
	}
}

// backoff is the time to wait after so many failures before the last.
func (m *Manager) backoff(failures int) time.Duration {
	d := m.retryMin
	for range failures {
		if d >= m.retryMax/2 {
			return m.retryMax
		}
		d *= 2
	}
	return d
}

// enqueue is called with the lock held, for a record whose stage is neither
// queued nor delivering.
func (m *Manager) enqueue(uid types.UID, r *record) {
	if m.sink == nil {
		return
	}
	r.stage = queued
	m.queue = append(m.queue, uid)
	m.poke()
}

// poke has the loop look again.
func (m *Manager) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
