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

// Run removes the slices of drivers that are gone, has claims unprepared of pods that are gone, and has the health of devices expire. It
// implements [lifecycle.Runner]. It returns nil when ctx ends, and [runtime.ErrAlreadyRunning] if it was called before.
func (m *Manager) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return fmt.Errorf("dra: %w", runtime.ErrAlreadyRunning)
	}
	var joined sync.WaitGroup
	defer flow.Wait(&joined, flow.Late, func() { m.opts.Logger.Info("A removal of ResourceSlices or a call of a driver does not end") })
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var sweeping, removing flow.Signal = flow.NewSignal(), flow.NewSignal()
	joined.Go(func() { m.file.Run(ctx, m.opts.Logger) })
	joined.Go(func() { m.health.Run(ctx, m.opts.Logger) })
	joined.Go(func() { m.sweep(ctx, sweeping) })
	joined.Go(func() { m.removeSlices(ctx, removing) })
	for {
		next := m.expire(time.Now())
		timer := time.NewTimer(next)
		if next == 0 {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-m.wake:
			sweeping.Notify()
			removing.Notify()
		case <-timer.C:
		}
		timer.Stop()
	}
}

// sweep has claims unprepared of pods that are gone, once a minute while there are claims.
func (m *Manager) sweep(ctx context.Context, changed <-chan struct{}) {
	for {
		m.mu.Lock()
		var wait time.Duration
		if m.opts.Gone != nil && m.state != nil && len(m.state.claims) > 0 {
			wait = sweepPeriod
		}
		m.mu.Unlock()
		if wait == 0 {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				continue
			}
		}
		if !flow.Sleep(ctx, wait) {
			return
		}
		m.sweepOnce(ctx)
	}
}

func (m *Manager) sweepOnce(ctx context.Context) {
	m.mu.Lock()
	pods := slices.Sorted(maps.Keys(m.state.byPod))
	m.mu.Unlock()
	for _, pod := range slices.DeleteFunc(pods, func(pod types.UID) bool { return !m.opts.Gone(pod) }) {
		if err := m.release(ctx, pod); err != nil && ctx.Err() == nil {
			m.opts.Logger.Error(err, "The claims of a pod that is gone cannot be unprepared; trying again", "uid", pod)
		}
	}
}

// removeSlices removes the slices of drivers that are gone.
func (m *Manager) removeSlices(ctx context.Context, changed <-chan struct{}) {
	for {
		name, wait, due := m.nextRemoval(time.Now())
		if !due {
			var timer <-chan time.Time
			if wait > 0 {
				timer = time.After(wait)
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-timer: // it may have been cancelled meanwhile
			}
			continue
		}
		call, cancel := context.WithTimeout(ctx, removeTimeout)
		err := runtime.Recover(func() error { return m.opts.Slices.RemoveSlices(call, name) })
		cancel()
		if ctx.Err() != nil {
			return
		}
		m.removedSlices(name, err)
	}
}

// nextRemoval returns a removal that is due. If none is, it returns the time until one is, 0 for never.
func (m *Manager) nextRemoval(now time.Time) (name string, wait time.Duration, due bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.removals)) {
		left := m.removals[name].due.Sub(now)
		if left <= 0 {
			return name, 0, true
		}
		wait = flow.Soonest(wait, left)
	}
	return "", wait, false
}

// removedSlices takes over the result of a removal.
func (m *Manager) removedSlices(name string, err error) {
	m.mu.Lock()
	r, still := m.removals[name]
	if err == nil {
		delete(m.removals, name)
	} else if still {
		r.failures++
		r.due = time.Now().Add(removalBackoff().After(r.failures))
		m.removals[name] = r
	}
	m.mu.Unlock()
	switch {
	case err == nil:
		m.opts.Logger.V(1).Info("ResourceSlices removed", "driver", name)
	case still && r.failures == 1:
		m.opts.Logger.Error(err, "ResourceSlices cannot be removed; trying again", "driver", name)
	}
}
