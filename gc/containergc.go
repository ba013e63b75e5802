package gc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// firstRetry is the delay after the first failed collection.
const firstRetry = time.Second

// idlePeriods is the number of periods after which a collection is made also if
// nothing has changed.
const idlePeriods = 10

// Options are the settings of a [ContainerGC]; the zero value is valid.
type Options struct {
	Policy
	// Plan decides what is removed. Default: [Plan]. If it is set, CollectPod does nothing, since a
	// plan may depend on the pods of the whole node: dead containers stay until the next
	// collection.
	Plan PlanFunc
	// Period is the time from the end of a collection to the next one. Default 1
	// minute, kubelet's ContainerGCPeriod. If Changed is called at all, a collection is left out up to ten times in a
	// row while it is not called, unless the last one has failed, or there may be more to do as time passes: with a
	// Plan, or Policy.MinAge. After a collection that failed it is 1 second, and doubles up to Period with each further
	// failure in a row.
	Period time.Duration
	// LogsDir is the directory in which the runtime writes logs, a directory for each
	// pod. "": log directories are left alone.
	LogsDir string
	// LogLinksDir is a directory with links to logs in LogsDir. With the log directory of a
	// pod its links are removed; links to other places are left alone. "": there are no links.
	LogLinksDir string
	// Ended reports whether a pod has ended for good, also if it is not gone. DeleteUnused removes the
	// containers of such pods. nil: of no pod that is not gone.
	Ended func(uid types.UID) bool
	// Cgroups has the cgroups of pods. Those of gone pods are removed. nil: they are left alone.
	Cgroups Cgroups
	// Parallel is the number of concurrent removals. Default 8.
	Parallel int
	// Observer receives kubelet's event ContainerGCFailed about the node after a collection in Run that failed, records
	// of what came of the removal of cgroups, and each [Collection].
	runtime.Observer
}

// ContainerGC is the default [Collector]. Make one with [New].
type ContainerGC struct {
	rt              ListRemover
	gone            Gone
	opts            Options
	log             logr.Logger
	waitForObserver func()

	started atomic.Bool
	// busy holds a value while something is removed; it guards what belongs to Collect.
	busy chan struct{}
	// observed means that Changed is called, and changed that it was since the last period.
	observed, changed atomic.Bool
	// kick holds one request; while it does, further ones mean the same.
	kick chan struct{}
	// swept means that the links of all gone pods were removed once. It belongs to Collect,
	// like goneSince.
	swept bool
	// goneSince has the log directories of gone pods, by path, and when they were found.
	goneSince map[string]time.Time
	// logsDue is when the next of them has been kept for Policy.KeepLogs, nil if there is none. It is
	// written while something is removed, also by DeleteUnused, and read by Run.
	logsDue atomic.Pointer[time.Time]

	// ownPlan means that Options.Plan was set.
	ownPlan bool
	// deaths holds a token while died has pods.
	deaths chan struct{}
	mu     sync.Mutex
	// died has the pods of CollectPod.
	died map[types.UID]*runtime.PodStatus
}

// New returns a collector for the runtime, or an error if an argument is nil.
func New(rt ListRemover, gone Gone, opts Options) (*ContainerGC, error) {
	observer, wait := opts.Queued()
	opts.Observer = observer
	if rt == nil || gone == nil {
		return nil, errors.New("gc: a Runtime and a Gone function are required")
	}
	ownPlan := opts.Plan != nil
	if !ownPlan {
		opts.Plan = Plan
	}
	if opts.Period <= 0 {
		opts.Period = time.Minute
	}
	if opts.Parallel <= 0 {
		opts.Parallel = 8
	}
	c := &ContainerGC{
		rt: rt, gone: gone, opts: opts, log: opts.Logger, waitForObserver: wait,
		kick:    make(chan struct{}, 1),
		busy:    make(chan struct{}, 1),
		ownPlan: ownPlan, deaths: make(chan struct{}, 1), died: map[types.UID]*runtime.PodStatus{},
	}
	c.changed.Store(true) // an earlier agent may have left something behind
	return c, nil
}

// Changed implements [Collector].
func (c *ContainerGC) Changed() {
	c.observed.Store(true)
	c.changed.Store(true)
}

// idle reports whether there is nothing to collect, as far as is known at the end of a period.
func (c *ContainerGC) idle() bool {
	return c.observed.Load() && !c.changed.Swap(false) && !c.ownPlan && c.opts.MinAge == 0 &&
		!c.logsDueBy(time.Now())
}

// Kick implements [Collector]. It also ends the back-off of earlier failures.
func (c *ContainerGC) Kick() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Run implements [Collector]. The first collection comes after the period or
// with the first Kick.
func (c *ContainerGC) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return fmt.Errorf("gc: %w", runtime.ErrAlreadyRunning)
	}
	defer c.waitForObserver()
	retry := flow.Backoff{Min: min(firstRetry, c.opts.Period), Max: c.opts.Period}
	failures, idle := 0, 0
	next := time.NewTimer(c.opts.Period)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.deaths:
			c.collectDead(ctx)
			continue
		case <-next.C:
			if failures == 0 && idle < idlePeriods && c.idle() {
				idle++
				next.Reset(c.untilDue(c.opts.Period))
				continue
			}
		case <-c.kick:
			failures = 0 // there is something new to remove
		}
		idle = 0
		wait := c.opts.Period
		if err := c.Collect(ctx); err == nil {
			failures = 0
			wait = c.untilDue(wait)
		} else if ctx.Err() == nil {
			failures++
			wait = retry.After(failures)
			c.log.Error(err, "Garbage collection has failed in part; it will be repeated", "after", wait)
			c.opts.Event.Emit(runtime.Event{Type: v1.EventTypeWarning, Reason: "ContainerGCFailed",
				Message: err.Error(), Logged: true})
		}
		next.Reset(wait)
	}
}

// untilDue returns the time until logs are due, at most wait. Those of pods that end one
// after the other are collected together.
func (c *ContainerGC) untilDue(wait time.Duration) time.Duration {
	due := c.logsDue.Load()
	if due == nil {
		return wait
	}
	return min(wait, max(time.Until(*due), c.opts.KeepLogs/10))
}

// logsDueBy reports whether logs are due at a time.
func (c *ContainerGC) logsDueBy(now time.Time) bool {
	due := c.logsDue.Load()
	return due != nil && !now.Before(*due)
}

// Collect makes one collection. Its error joins the errors of everything that could
// not be removed. If another collection is under way, it comes after that one.
func (c *ContainerGC) Collect(ctx context.Context) error { return c.alone(ctx, c.opts.Policy, nil) }

// DeleteUnused implements [Collector]. If another collection is under way, it comes after that one.
func (c *ContainerGC) DeleteUnused(ctx context.Context) error {
	policy := c.opts.Policy
	policy.KeepLogs = 0
	err := c.alone(ctx, policy, c.opts.Ended)
	if err != nil {
		c.changed.Store(true) // Run does not leave its next collection out
	}
	return err
}

// Preview implements [Collector]. If a collection is under way, it comes after that one.
func (c *ContainerGC) Preview(ctx context.Context) (p Preview, err error) {
	end, err := c.begin(ctx)
	if err != nil {
		return p, err
	}
	defer end()
	err = runtime.Recover(func() error {
		var noLogs error
		if p.Input, noLogs, err = c.look(ctx, c.opts.Policy, remembered(c.gone), nil); err != nil {
			return err
		}
		p.Removal = c.opts.Plan(p.Input)
		return noLogs
	})
	return p, err
}

// begin waits until no other collection is under way. end must be called.
func (c *ContainerGC) begin(ctx context.Context) (end func(), err error) {
	select {
	case c.busy <- struct{}{}:
		return func() { <-c.busy }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another collection: %w", ctx.Err())
	}
}

// alone makes one collection when no other one is under way. The containers of pods that have ended are removed, too;
// nil: there are none.
func (c *ContainerGC) alone(ctx context.Context, policy Policy, ended Gone) error {
	end, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	done := Collection{Began: time.Now()}
	done.Err = runtime.Recover(func() error { return c.collect(ctx, &done, policy, ended) })
	done.Ended = time.Now()
	c.opts.Measure.Emit(done)
	return done.Err
}

// remembered returns the function with its answers kept, so that no pod is in two states in a plan.
func remembered(f Gone) Gone {
	known := map[types.UID]bool{}
	return func(uid types.UID) bool {
		is, ok := known[uid]
		if !ok {
			is = f(uid)
			known[uid] = is
		}
		return is
	}
}

// look returns the input of a plan. noLogs is why log directories are missing in it.
func (c *ContainerGC) look(ctx context.Context, policy Policy, gone, ended Gone) (in Input, noLogs, err error) {
	pods, err := runtime.ListPods(ctx, c.rt)
	if err != nil {
		return in, nil, fmt.Errorf("listing pods: %w", err)
	}
	in = Input{Pods: make([]Pod, len(pods)), Policy: policy, Now: time.Now()}
	for i, pod := range pods {
		in.Pods[i] = Pod{Pod: pod, Gone: gone(pod.UID) || ended != nil && ended(pod.UID)}
	}
	in.LogDirs, noLogs = c.logDirs(in.Now, gone)
	return in, noLogs, nil
}

func (c *ContainerGC) collect(ctx context.Context, done *Collection, policy Policy, ended Gone) error {
	gone := remembered(c.gone)
	in, noLogs, err := c.look(ctx, policy, gone, ended)
	if err != nil {
		return err
	}
	plan := c.opts.Plan(in)
	removed := plan.LogDirs
	if policy.KeepLogs > 0 {
		removed = in.LogDirs // now or later
	}
	containers, withSandbox := split(plan, removed)
	var errs []error
	done.Containers, errs = each(c.opts.Parallel, containers, errs,
		func(r ContainerRemoval) error { return c.removeContainer(ctx, r) })
	var more atomic.Int64
	sandboxes := countSandboxes(in.Pods)
	done.Sandboxes, errs = each(c.opts.Parallel, plan.Sandboxes, errs, func(r SandboxRemoval) error {
		if r.State == runtime.SandboxReady {
			return fmt.Errorf("pod %s: sandbox %s is ready; a plan must not remove it", r.Pod, r.ID)
		}
		if err := c.rt.RemoveSandbox(ctx, r.ID); err != nil {
			return fmt.Errorf("pod %s: removing dead sandbox %s: %w", r.Pod, r.ID, err)
		}
		c.log.V(2).Info("Removed a dead sandbox", "pod", r.Pod, "sandboxID", r.ID)
		more.Add(int64(withSandbox[r.ID]))
		sandboxes.remove(r.Pod.UID)
		return nil
	})
	done.Containers += int(more.Load())
	for _, dir := range plan.LogDirs {
		if !c.gone(dir.UID) {
			continue // its pod has come back meanwhile and may write to it
		}
		if err := os.RemoveAll(dir.Path); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: removing its logs: %w", dir.UID, err))
			continue
		}
		done.LogDirs++
	}
	c.scheduleLogs(in)
	done.Failed = len(errs)
	if done.LogDirs > 0 || !c.swept {
		err := c.removeLinks()
		c.swept = err == nil
		errs = append(errs, err)
	}
	errs = append(errs, c.removeCgroups(func(uid types.UID) bool { return !sandboxes.any(uid) && c.gone(uid) }))
	return errors.Join(append(errs, noLogs)...)
}

// scheduleLogs sets logsDue. Logs that were due were in the plan, or will never be.
func (c *ContainerGC) scheduleLogs(in Input) {
	var next *time.Time
	for _, dir := range in.LogDirs {
		if due := dir.GoneSince.Add(c.opts.KeepLogs); dir.Gone && due.After(in.Now) &&
			(next == nil || due.Before(*next)) {
			next = &due
		}
	}
	c.logsDue.Store(next)
}

func (c *ContainerGC) removeContainer(ctx context.Context, r ContainerRemoval) error {
	if err := c.rt.RemoveContainer(ctx, r.ID); err != nil {
		return fmt.Errorf("pod %s: removing dead container %s (%s): %w", r.Pod, r.Name, r.ID, err)
	}
	c.log.V(2).Info("Removed a dead container", "pod", r.Pod, "container", r.Name, "containerID", r.ID)
	return nil
}

// removeLinks removes the links to logs of which the whole log directory of the pod is
// gone. A link to a log that is missing in an existing directory stays: the log may be
// rotated at this moment, and a runtime removes the link with its container.
func (c *ContainerGC) removeLinks() error {
	if c.opts.LogLinksDir == "" || c.opts.LogsDir == "" {
		return nil
	}
	entries, err := os.ReadDir(c.opts.LogLinksDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for links to logs of gone pods: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.Type() != os.ModeSymlink {
			continue
		}
		link := filepath.Join(c.opts.LogLinksDir, e.Name())
		target, err := os.Readlink(link)
		if err != nil {
			continue // gone meanwhile
		}
		inside, below := strings.CutPrefix(filepath.Clean(target), filepath.Clean(c.opts.LogsDir)+"/")
		podDir, _, _ := strings.Cut(inside, "/")
		if _, isPod := uidOfLogDir(podDir); !below || !isPod {
			continue
		}
		if _, err := os.Lstat(filepath.Join(c.opts.LogsDir, podDir)); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing a link to a log that is gone: %w", err))
		}
	}
	return errors.Join(errs...)
}

// split returns the containers to remove one by one, and the number of those that go with
// each sandbox: a runtime removes a sandbox with its containers, in one call instead of
// three. The logs of these containers must be removed with the directory of their pod:
// removed has the directories that are.
func split(plan Removal, removed []LogDir) (containers []ContainerRemoval, withSandbox map[string]int) {
	logs := make(map[types.UID]bool, len(removed))
	for _, dir := range removed {
		logs[dir.UID] = dir.Gone
	}
	withSandbox = map[string]int{}
	whole := map[string]bool{}
	for _, s := range plan.Sandboxes {
		whole[s.ID] = s.State != runtime.SandboxReady && logs[s.Pod.UID]
	}
	for _, c := range plan.Containers {
		if whole[c.SandboxID] {
			withSandbox[c.SandboxID]++
		} else {
			containers = append(containers, c)
		}
	}
	return containers, withSandbox
}

// each calls f for all items, a bounded number at once. It returns the number of
// successes, and errs with the errors of the others.
func each[T any](parallel int, items []T, errs []error, f func(T) error) (int, []error) {
	var g errgroup.Group
	g.SetLimit(parallel)
	results := make([]error, len(items))
	for i, item := range items {
		g.Go(func() error {
			results[i] = runtime.Recover(func() error { return f(item) })
			return nil
		})
	}
	_ = g.Wait() // the errors are in results
	done := 0
	for _, err := range results {
		if err == nil {
			done++
		} else {
			errs = append(errs, err)
		}
	}
	return done, errs
}

// logDirs returns the directories in LogsDir whose name is <namespace>_<name>_<uid>.
// Other entries do not belong to a pod and stay.
func (c *ContainerGC) logDirs(now time.Time, gone func(types.UID) bool) ([]LogDir, error) {
	if c.opts.LogsDir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(c.opts.LogsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for logs of gone pods: %w", err)
	}
	var dirs []LogDir
	goneSince := map[string]time.Time{}
	for _, e := range entries {
		uid, ok := uidOfLogDir(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		dir := LogDir{Path: filepath.Join(c.opts.LogsDir, e.Name()), UID: uid, Gone: gone(uid)}
		if dir.Gone {
			if dir.GoneSince = c.goneSince[dir.Path]; dir.GoneSince.IsZero() {
				dir.GoneSince = now
			}
			goneSince[dir.Path] = dir.GoneSince
		}
		dirs = append(dirs, dir)
	}
	c.goneSince = goneSince
	return dirs, nil
}

// uidOfLogDir takes the UID from <namespace>_<name>_<uid>. A UID may contain an underscore;
// the others are DNS names and cannot.
func uidOfLogDir(name string) (types.UID, bool) {
	parts := strings.SplitN(name, "_", 3)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", false
	}
	return types.UID(parts[2]), true
}
