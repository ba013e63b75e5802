package dra

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// sweepPeriod is how often pods are looked for that are gone and still use claims. It is kubelet's.
	sweepPeriod = time.Minute
	// removeTimeout bounds one removal of slices.
	removeTimeout = time.Minute
)

// removal is a removal of slices.
type removal struct {
	due      time.Time
	failures int
}

// removalBackoff is kubelet's.
func removalBackoff() flow.Backoff { return flow.Backoff{Min: time.Second, Max: 5 * time.Minute} }

// job is work of Run that may take long: it has a goroutine while it runs.
type job struct {
	// due returns when the job is to run; the zero time if there is nothing to do. It is not called while the job runs.
	due  func(now time.Time) time.Time
	do   func(ctx context.Context)
	busy bool
}

// Run removes the slices of drivers that are gone, has claims unprepared of pods that are gone, has the health of
// devices expire, and runs what [Endpoint.Go] was called with. It implements [lifecycle.Runner]. It returns nil when
// ctx ends, and [runtime.ErrAlreadyRunning] if it was called before.
func (m *Manager) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return fmt.Errorf("dra: %w", runtime.ErrAlreadyRunning)
	}
	var joined sync.WaitGroup
	defer flow.Wait(&joined, flow.Late, func() {
		m.log.Info("A removal of ResourceSlices, a call of a driver, a write of the state or a function of " +
			"Endpoint.Go does not end")
	})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m.parts.begin(ctx, &joined)
	defer m.parts.end()
	m.file.SaveLater() // both are read
	m.health.SaveLater()
	jobs := []*job{
		m.writing(m.file), m.writing(m.health), {due: m.sweepDue, do: m.sweep}, {due: m.removalDue, do: m.removeSlices},
	}
	ended := make(chan *job)
	for {
		now := time.Now()
		next := m.expire(now)
		for _, j := range jobs {
			if j.busy {
				continue
			}
			switch at := j.due(now); {
			case at.IsZero():
			case at.After(now):
				next = flow.Soonest(next, at.Sub(now))
			default:
				j.busy = true
				joined.Go(func() {
					m.guard(func() { j.do(ctx) })
					select {
					case ended <- j:
					case <-ctx.Done():
					}
				})
			}
		}
		timer := time.NewTimer(next)
		if next == 0 {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			for _, f := range []*checkpoint.File{m.file, m.health} {
				joined.Go(func() { f.Flush(ctx, m.log) }) // a last time
			}
			return nil
		case <-m.wake:
		case j := <-ended:
			j.busy = false
		case <-timer.C:
		}
		timer.Stop()
	}
}

// guard calls f. A panic is logged.
func (m *Manager) guard(f func()) {
	if err := runtime.Recover(func() error { f(); return nil }); err != nil {
		m.log.Error(err, "Work for dynamic resources has panicked")
	}
}

// writing is the job of writing a file that was not written at once.
func (m *Manager) writing(f *checkpoint.File) *job {
	return &job{
		due: func(now time.Time) time.Time {
			if f.Unsaved() {
				return now
			}
			return time.Time{}
		},
		do: func(ctx context.Context) { f.Flush(ctx, m.log) },
	}
}

// sweepDue returns when pods are looked for that are gone: once a minute while there are claims.
func (m *Manager) sweepDue(now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.state == nil || len(m.state.claims) == 0:
		m.sweepAt = time.Time{}
	case m.sweepAt.IsZero():
		m.sweepAt = now.Add(sweepPeriod)
	}
	return m.sweepAt
}

// sweep has claims unprepared of pods that are gone.
func (m *Manager) sweep(ctx context.Context) {
	m.mu.Lock()
	pods := slices.Sorted(maps.Keys(m.state.byPod))
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.sweepAt = time.Time{}
	}()
	for _, pod := range slices.DeleteFunc(pods, func(pod types.UID) bool { return !m.node.Gone(pod) }) {
		if err := m.release(ctx, pod); err != nil && ctx.Err() == nil {
			m.log.Error(err, "The claims of a pod that is gone cannot be unprepared; trying again", "uid", pod)
		}
	}
}

// removalDue returns when slices are to be removed.
func (m *Manager) removalDue(time.Time) time.Time {
	_, r := m.nextRemoval()
	return r.due
}

// removeSlices does the removal that is due first.
func (m *Manager) removeSlices(ctx context.Context) {
	name, r := m.nextRemoval()
	if r.due.IsZero() || r.due.After(time.Now()) { // it was cancelled meanwhile
		return
	}
	call, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	err := runtime.Recover(func() error { return m.opts.Slices.RemoveSlices(call, name) })
	if ctx.Err() == nil {
		m.removedSlices(name, r, err)
	}
}

// nextRemoval returns the removal that is due first; the zero value if there is none.
func (m *Manager) nextRemoval() (name string, first removal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range slices.Sorted(maps.Keys(m.removals)) {
		if r := m.removals[other]; first.due.IsZero() || r.due.Before(first.due) {
			name, first = other, r
		}
	}
	return name, first
}

// removedSlices takes over the result of a removal. If the driver was there meanwhile and is gone again, its slices are
// removed once more.
func (m *Manager) removedSlices(name string, r removal, err error) {
	m.mu.Lock()
	still := m.removals[name] == r
	switch {
	case !still:
	case err == nil:
		delete(m.removals, name)
	default:
		m.removals[name] = removal{due: time.Now().Add(removalBackoff().After(r.failures + 1)),
			failures: r.failures + 1}
	}
	m.mu.Unlock()
	switch {
	case err == nil:
		m.log.V(1).Info("ResourceSlices removed", "driver", name)
	case still && r.failures == 0:
		m.log.Error(err, "ResourceSlices cannot be removed; trying again", "driver", name)
	}
}
