package gc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// firstRetry is the time until a failed collection is tried again. It doubles with
// each further failure, up to the period.
const firstRetry = time.Second

// Runtime is what the collector needs of a container runtime.
type Runtime interface {
	runtime.Lister
	runtime.Remover
}

// Options are the settings of a [Collector].
type Options struct {
	Policy
	// Period between two collections. Default 1 minute, kubelet's
	// ContainerGCPeriod. After one that left something behind it is a second, twice
	// that after the next, and so on.
	Period time.Duration
	// LogsDir is where the runtime writes logs, a directory for each pod. "": log
	// directories are left alone.
	LogsDir string
	// Parallel is how many removals are under way at once. Default 8.
	Parallel int
	// Logger. Default: discards.
	Logger logr.Logger
}

// Collector removes what is dead.
type Collector struct {
	rt   Runtime
	gone func(types.UID) bool
	opts Options
	log  logr.Logger

	started atomic.Bool
	// kick has room for one signal; further ones before it was taken mean the same.
	kick chan struct{}
}

// New returns a collector. gone reports whether a pod is neither desired nor has
// a worker; it must say false while it is not yet known what is desired.
func New(rt Runtime, gone func(types.UID) bool, opts Options) (*Collector, error) {
	if rt == nil || gone == nil {
		return nil, errors.New("gc: a runtime and a function that tells which pods are gone are required")
	}
	if opts.Period <= 0 {
		opts.Period = time.Minute
	}
	if opts.Parallel <= 0 {
		opts.Parallel = 8
	}
	if opts.Logger.IsZero() {
		opts.Logger = logr.Discard()
	}
	return &Collector{rt: rt, gone: gone, opts: opts, log: opts.Logger, kick: make(chan struct{}, 1)}, nil
}

// Kick asks for a collection now. It never blocks.
func (c *Collector) Kick() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Run collects until the context ends, and then returns nil.
func (c *Collector) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return runtime.ErrAlreadyRunning
	}
	next := time.NewTimer(c.opts.Period)
	defer next.Stop()
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		case <-c.kick:
			retry = firstRetry // there is something new to remove
		}
		wait := c.opts.Period
		if err := c.Collect(ctx); err == nil {
			retry = firstRetry
		} else if ctx.Err() == nil {
			wait = min(retry, wait)
			retry = 2 * wait
			c.log.Error(err, "Garbage collection left something behind; it is tried again", "after", wait)
		}
		next.Reset(wait)
	}
}

// Collect collects once. Its error joins all that could not be removed.
func (c *Collector) Collect(ctx context.Context) error {
	pods, err := c.rt.ListPods(ctx)
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	plan := Plan(pods, c.gone, c.opts.Policy, time.Now())
	errs := []error{
		each(c.opts.Parallel, plan.Containers, func(r ContainerRemoval) error {
			if err := c.rt.RemoveContainer(ctx, r.ID); err != nil {
				return fmt.Errorf("pod %s: removing dead container %s (%s): %w", r.Pod, r.Name, r.ID, err)
			}
			c.log.V(2).Info("Removed a dead container", "pod", r.Pod, "container", r.Name, "containerID", r.ID)
			return nil
		}),
		each(c.opts.Parallel, plan.Sandboxes, func(r SandboxRemoval) error {
			if err := c.rt.RemoveSandbox(ctx, r.ID); err != nil {
				return fmt.Errorf("pod %s: removing dead sandbox %s: %w", r.Pod, r.ID, err)
			}
			c.log.V(2).Info("Removed a dead sandbox", "pod", r.Pod, "sandboxID", r.ID)
			return nil
		}),
		c.removeLogs(pods),
	}
	return errors.Join(errs...)
}

// each calls f for all items, a bounded number at once, and joins the errors.
func each[T any](parallel int, items []T, f func(T) error) error {
	var g errgroup.Group
	g.SetLimit(parallel)
	errs := make([]error, len(items))
	for i, item := range items {
		g.Go(func() error {
			errs[i] = f(item)
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	return errors.Join(errs...)
}

// removeLogs removes the log directories, <namespace>_<name>_<uid>, of pods that
// are gone and of which the runtime held nothing before this collection. Anything
// else in there is not ours and stays.
func (c *Collector) removeLogs(pods []*runtime.Pod) error {
	if c.opts.LogsDir == "" {
		return nil
	}
	entries, err := os.ReadDir(c.opts.LogsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for logs of gone pods: %w", err)
	}
	held := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		held[pod.UID] = held[pod.UID] || !c.gone(pod.UID) || pod.Running()
	}
	var errs []error
	for _, e := range entries {
		uid, ok := uidOfLogDir(e.Name())
		if !ok || !e.IsDir() || held[uid] || !c.gone(uid) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(c.opts.LogsDir, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("removing the logs of gone pod %s: %w", uid, err))
		}
	}
	return errors.Join(errs...)
}

// uidOfLogDir takes the UID from <namespace>_<name>_<uid>; none of the three can
// have an underscore.
func uidOfLogDir(name string) (types.UID, bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", false
	}
	return types.UID(parts[2]), true
}
