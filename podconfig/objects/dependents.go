package objects

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/kubeletkit/kubeletkit/internal/backoff"
	v1 "k8s.io/api/core/v1"
)

// Pods returns the pods that should run on the node.
type Pods interface {
	Pods() []*v1.Pod
}

// Dependents finds the pods whose secrets and config maps have changed, so that a
// container that waits for one of them is started soon after it appears. What runs
// keeps the environment that it was started with.
type Dependents struct {
	source Source
	pods   Pods
	log    logr.Logger

	mu sync.Mutex
	// all says that any object may have changed; changed are those that have.
	all     bool
	changed map[Ref]struct{}
}

// NewDependents returns the Dependents of a source's objects among the pods. Without
// a source, nil, there are none. The zero Logger discards.
func NewDependents(source Source, pods Pods, logger logr.Logger) *Dependents {
	if logger.IsZero() {
		logger = logr.Discard()
	}
	return &Dependents{source: source, pods: pods, log: logger, changed: map[Ref]struct{}{}}
}

// restarts is the delay before a watch that failed is begun anew. A watch of Max or
// longer counts as health.
var restarts = backoff.Exponential{Min: time.Second, Max: time.Minute}

// Run watches the source until ctx ends, and then returns nil. A watch that fails
// is begun anew after a second, and longer if it goes on failing.
func (d *Dependents) Run(ctx context.Context) error {
	if d.source == nil {
		<-ctx.Done()
		return nil
	}
	failures := 0
	for {
		began := time.Now()
		err := d.watch(ctx)
		if err == nil && ctx.Err() == nil {
			d.log.V(1).Info("Secrets and config maps do not change any more")
			<-ctx.Done()
		}
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) >= restarts.Max {
			failures = 0
		}
		failures++
		delay := restarts.After(failures)
		d.log.Error(err, "Watch of secrets and config maps failed; it is begun anew", "retryIn", delay)
		if !sleep(ctx, delay) {
			return nil
		}
	}
}

// watch watches the source once. A panic becomes an error with its stack, as it does
// with sources of pods.
func (d *Dependents) watch(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the source of secrets and config maps panicked: %v\n%s", r, debug.Stack())
		}
	}()
	return d.source.Watch(ctx, d.note)
}

// sleep reports whether the time has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (d *Dependents) note(refs []Ref) {
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
	d.all, d.changed = false, map[Ref]struct{}{}
	d.mu.Unlock()

	var due []*v1.Pod
	for _, pod := range d.pods.Pods() {
		if slices.ContainsFunc(References(pod), func(ref Ref) bool {
			_, has := changed[ref]
			return all || has
		}) {
			due = append(due, pod)
		}
	}
	d.log.V(2).Info("Secrets and config maps changed", "all", all, "changed", len(changed), "podsToSync", len(due))
	return due
}
