package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// DependentsOptions are the settings of [Dependents].
type DependentsOptions struct {
	// Logger. Default: that of package slog.
	Logger logr.Logger
}

// Dependents finds the pods that refer to secrets and config maps that have changed.
// The agent syncs these pods at once, so that a container that waits for an object starts soon
// after the object appears, and files in volumes are those of the latest objects. Running
// containers keep their environment.
type Dependents struct {
	source Source
	pods   func() []*v1.Pod
	log    logr.Logger

	mu sync.Mutex
	// changed are the objects that have changed since the last call of Due. If all is
	// set, any object may have changed.
	all     bool
	changed map[Ref]struct{}
	// wake has room for one token: there is one when something has changed since it was
	// taken. Further tokens are dropped.
	wake flow.Signal
}

// NewDependents returns the Dependents of the source's objects among the
// desired pods, which pods returns. If source is nil, no pod depends on anything.
func NewDependents(source Source, pods func() []*v1.Pod, opts DependentsOptions) *Dependents {
	opts.Logger = logging.OrDefault(opts.Logger)
	return &Dependents{source: source, pods: pods, log: opts.Logger, changed: map[Ref]struct{}{},
		wake: flow.NewSignal()}
}

// restarts is the delay before a watch that has failed is started again. A watch that
// lasted Max or longer resets it.
var restarts = flow.Backoff{Min: time.Second, Max: time.Minute}

// Run watches the source until ctx ends, and then returns nil. If the watch fails, it
// is started again after a delay of 1 s, doubling to 1 min.
func (d *Dependents) Run(ctx context.Context) error {
	if d.source == nil {
		<-ctx.Done()
		return nil
	}
	restarts.Repeat(ctx, func() error {
		err := runtime.Recover(func() error { return d.source.Watch(ctx, d.note) })
		if err == nil && ctx.Err() == nil {
			d.log.V(1).Info("Secrets and config maps do not change any more")
			<-ctx.Done()
		}
		return err
	}, d.logFailure)
	return nil
}

func (d *Dependents) logFailure(err error, retryIn time.Duration) {
	log := d.log
	if crash := (*runtime.PanicError)(nil); errors.As(err, &crash) {
		err = fmt.Errorf("the source of secrets and config maps panicked: %w", err)
		log = log.WithValues("stack", string(crash.Stack))
	}
	log.Error(err, "Watch of secrets and config maps failed; it is started again", "retryIn", retryIn)
}

// note records changes. An empty list means that any object may have changed.
func (d *Dependents) note(refs []Ref) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = d.all || len(refs) == 0
	for _, ref := range refs {
		d.changed[ref] = struct{}{}
	}
	d.wake.Notify()
}

// Changed receives a value after objects have changed: a call of [Dependents.Due] may then
// return pods.
func (d *Dependents) Changed() <-chan struct{} { return d.wake }

// Due returns the pods that refer to objects that have changed since the last call.
func (d *Dependents) Due() []*v1.Pod {
	d.mu.Lock()
	all, changed := d.all, d.changed
	if !all && len(changed) == 0 {
		d.mu.Unlock()
		return nil
	}
	d.all, d.changed = false, map[Ref]struct{}{}
	d.mu.Unlock()

	var due []*v1.Pod
	for _, pod := range d.pods() {
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
