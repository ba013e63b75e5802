package podconfig

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
)

// Dependents finds the pods whose secrets and config maps have changed, so that a
// container that waits for one of them is started soon after it appears. What runs
// keeps the environment that it was started with.
type Dependents struct {
	source ObjectSource
	pods   *Manager
	log    logr.Logger

	mu sync.Mutex
	// all says that any object may have changed; changed are those that have.
	all     bool
	changed map[ObjectRef]struct{}
}

// NewDependents returns the Dependents of a source's objects among the pods. Without
// a source, nil, there are none. The zero Logger discards.
func NewDependents(source ObjectSource, pods *Manager, logger logr.Logger) *Dependents {
	if logger.IsZero() {
		logger = logr.Discard()
	}
	return &Dependents{source: source, pods: pods, log: logger, changed: map[ObjectRef]struct{}{}}
}

// Run watches the source until ctx ends, and then returns nil. A watch that fails
// is begun anew after a second, and longer if it goes on failing.
func (d *Dependents) Run(ctx context.Context) error {
	if d.source == nil {
		<-ctx.Done()
		return nil
	}
	for delay := minRestartDelay; ; delay = min(2*delay, maxRestartDelay) {
		began := time.Now()
		err := d.source.Watch(ctx, d.note)
		if err == nil && ctx.Err() == nil {
			d.log.V(1).Info("Secrets and config maps do not change any more")
			<-ctx.Done()
		}
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) >= maxRestartDelay {
			delay = minRestartDelay
		}
		d.log.Error(err, "Watch of secrets and config maps failed; it is begun anew", "retryIn", delay)
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

func (d *Dependents) note(refs []ObjectRef) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = d.all || len(refs) == 0
	for _, ref := range refs {
		d.changed[ref] = struct{}{}
	}
}

// Due returns the pods that refer to what has changed since the last call. It has
// the form of an option of package syncloop.
func (d *Dependents) Due(time.Time) []*v1.Pod {
	d.mu.Lock()
	all, changed := d.all, d.changed
	if !all && len(changed) == 0 {
		d.mu.Unlock()
		return nil
	}
	d.all, d.changed = false, map[ObjectRef]struct{}{}
	d.mu.Unlock()

	var due []*v1.Pod
	for _, pod := range d.pods.Pods() {
		if slices.ContainsFunc(References(pod), func(ref ObjectRef) bool {
			_, has := changed[ref]
			return all || has
		}) {
			due = append(due, pod)
		}
	}
	d.log.V(2).Info("Secrets and config maps changed", "all", all, "changed", len(changed), "podsToSync", len(due))
	return due
}
