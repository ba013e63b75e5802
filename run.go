package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Run makes an agent with [New], and runs it with [Agent.Run].
func Run(ctx context.Context, opts Options) error {
	agent, err := New(opts)
	if err != nil {
		return err
	}
	return agent.Run(ctx)
}

// Run runs the agent until ctx ends, waits for everything that it started, and returns
// nil; the pods continue to run. It returns an error early if a part fails for good, or if
// another agent uses the root or the logs directory, or if another user can write to the
// root directory. If a sink, plugin, probe handler or source ignores the end of its
// context, Run waits for it, and logs the part and the pod after some seconds. A second
// call returns an error that wraps [runtime.ErrAlreadyRunning].
func (a *Agent) Run(ctx context.Context) error {
	added, first := a.start()
	if !first {
		return fmt.Errorf("kubeletkit: %w", runtime.ErrAlreadyRunning)
	}
	unlock, err := LockRoot(ctx, a.opts.RootDir)
	if err != nil {
		return a.setupFailed(err)
	}
	defer unlock()
	unlockLogs, err := lockLogs(ctx, a.parts.Host.PodLogsDir)
	if err != nil {
		return a.setupFailed(err)
	}
	defer unlockLogs()

	a.log.Info("Agent starts", "node", a.opts.NodeName, "rootDir", a.opts.RootDir,
		"podLogsDir", a.parts.Host.PodLogsDir)
	if a.opts.ShareRootDir {
		if err := volume.Share(a.opts.RootDir); err != nil {
			a.log.Info("Root directory is not on a shared mount: containers with the mount propagation "+
				"HostToContainer or Bidirectional of a path in it do not start", "reason", err.Error())
		}
	}
	a.logParts()
	if message := checkResolvConf(ctx, a.parts.Host); message != "" {
		a.warnNode("CheckLimitsForResolvConf", message)
	}
	stopHistory := a.runHistory(ctx)
	stopCheckpoint := a.runCheckpoint(ctx)
	g, gctx := errgroup.WithContext(ctx)
	running := newRunningParts()
	run := func(c component, mayEnd bool) {
		running.add(c.name)
		g.Go(func() error {
			defer running.remove(c.name)
			err := c.run(gctx)
			switch {
			case gctx.Err() != nil: // the agent stops, or another part has failed first
				return nil
			case err != nil:
				return fmt.Errorf("kubeletkit: the %s failed: %w", c.name, err)
			case !mayEnd:
				return fmt.Errorf("kubeletkit: the %s returned before its context had ended", c.name)
			}
			return nil
		})
	}
	for _, r := range a.parts.Steps.Runners() {
		added = append(slices.Clip(added), component{r.Name(), r.Run})
	}
	for _, c := range added {
		run(component{c.name, func(ctx context.Context) error { return a.runAdded(ctx, c) }}, true)
	}
	p := &a.parts
	for _, c := range []component{
		{"status manager", p.Status.Run}, {"prober", p.Prober.Run}, {"pod workers", p.PodWorkers.Run},
		{"PLEG", p.PLEG.Run},
		{"garbage collector", p.GC.Run}, {"pod syncer",
			func(ctx context.Context) error { return p.PodSyncer.Run(ctx, p.PodWorkers) }},
		{"pod configuration", p.PodConfig.Run}, {"sync loop", a.loop.Run},
	} {
		run(c, false)
	}
	if p.ImageGC != nil {
		run(component{"garbage collector of images", p.ImageGC.Run}, false)
	}
	err = a.wait(gctx, running, func() error {
		err := g.Wait()
		flow.WaitForObservers(a.observers...)
		running.add("checkpoint or history") // these are the last to be stopped
		return errors.Join(err, stopCheckpoint(), stopHistory())
	})
	a.log.Info("Agent has stopped")
	return err
}

// setupFailed returns the error of an agent that cannot start, with kubelet's event about it.
func (a *Agent) setupFailed(err error) error {
	// it is the error of Run
	a.parts.Observer.Event.Emit(runtime.Event{Type: v1.EventTypeWarning, Reason: "KubeletSetupFailed",
		Message: err.Error(), Logged: true})
	flow.WaitForObservers(a.observers...)
	return fmt.Errorf("kubeletkit: %w", err)
}

// warnNode emits a warning about the node.
func (a *Agent) warnNode(reason, message string) {
	a.parts.Observer.Event.Emit(runtime.Event{Type: v1.EventTypeWarning, Reason: reason, Message: message})
}

// runAdded runs a component. If it panics, that is its error.
func (a *Agent) runAdded(ctx context.Context, c component) error {
	err := runtime.Recover(func() error { return c.run(ctx) })
	if p := (*runtime.PanicError)(nil); errors.As(err, &p) {
		a.log.Error(err, "Component panicked", "component", c.name, "stack", string(p.Stack))
	}
	return err
}

// runCheckpoint runs the checkpoint, if there is one, until the function that it returns
// is called. The checkpoint outlives the parts that use it, so that all is written.
func (a *Agent) runCheckpoint(ctx context.Context) (stop func() error) {
	if a.parts.Checkpoint == nil {
		return func() error { return nil }
	}
	return outlive(ctx, "checkpoint", a.parts.Checkpoint.Run)
}

// runHistory loads the history of the agent before, and runs this one like runCheckpoint. A
// history that cannot be loaded keeps no pod from running.
func (a *Agent) runHistory(ctx context.Context) (stop func() error) {
	h := a.parts.History
	if err := h.Load(ctx); err != nil {
		a.log.Error(err, "The history of the pods cannot be loaded, or not all of it")
	}
	return outlive(ctx, "history", h.Run)
}

// outlive runs a part until the function that it returns is called, also after ctx has
// ended. The function waits for the part and returns its error.
func outlive(ctx context.Context, part string, run func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1) // one value, of the one goroutine
	go func() { ended <- run(ctx) }()
	return func() error {
		cancel()
		if err := <-ended; err != nil {
			return fmt.Errorf("kubeletkit: the %s failed: %w", part, err)
		}
		return nil
	}
}

// The agent logs the parts that still run this long after it should have stopped, and then
// each time that the period has passed. The first is longer than the time after which a
// part itself logs the pods that it waits for, see internal/flow.
const (
	lateAfter  = 5 * time.Second
	latePeriod = time.Minute
)

// runningParts has the parts and components that run, by name.
type runningParts struct {
	mu    sync.Mutex
	names map[string]int
}

func newRunningParts() *runningParts { return &runningParts{names: map[string]int{}} }

func (r *runningParts) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[name]++
}

func (r *runningParts) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names[name]--; r.names[name] == 0 {
		delete(r.names, name)
	}
}

func (r *runningParts) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.names))
}

// wait returns the result of join, which waits for all parts. When ctx has ended and join
// does not return soon, it logs the parts that still run.
func (a *Agent) wait(ctx context.Context, running *runningParts, join func() error) error {
	joined := make(chan error, 1) // one value, of the one goroutine
	go func() { joined <- join() }()
	select {
	case err := <-joined:
		return err
	case <-ctx.Done():
	}
	began := time.Now()
	late := time.NewTimer(lateAfter)
	defer late.Stop()
	for {
		select {
		case err := <-joined:
			return err
		case <-late.C:
			a.log.Error(nil, "Agent cannot stop: parts have not returned although their context has ended; the log "+
				"lines of a part name the pods that it waits for",
				"parts", running.list(), "after", time.Since(began))
			late.Reset(latePeriod)
		}
	}
}

// Report has the outcome of each pod of [Agent.RunOnce].
type Report []PodReport

// PodReport is the outcome of one pod.
type PodReport struct {
	// Pod is "namespace/name".
	Pod   string
	Phase v1.PodPhase
	// Message is the reason why the pod does not run; empty if none is known.
	Message string
}

// String returns a line for each pod.
func (r Report) String() string {
	var b strings.Builder
	for _, p := range r {
		fmt.Fprintf(&b, "%s: %s", p.Pod, p.Phase)
		if p.Message != "" {
			fmt.Fprintf(&b, " (%s)", p.Message)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// RunOnce runs the agent until each pod that the sources deliver first is Running or has
// ended, and then stops it; the pods go on running. Failures, such as those of image
// pulls, are retried with their usual back-off until the context ends, so give it a
// deadline. Later changes of the sources are ignored.
//
// RunOnce always returns a report. It returns an error if a pod has failed, or one that
// wraps the cause of the context if that ended first.
func (a *Agent) RunOnce(ctx context.Context) (Report, error) {
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1) // one value, of the one goroutine
	go func() { ended <- a.Run(rctx) }()
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	frozen := false
	for {
		select {
		case err := <-ended:
			if err == nil {
				err = context.Cause(ctx)
			}
			return report(a.Pods()), fmt.Errorf("not every pod got to run: %w", err)
		case <-tick.C:
		}
		if !frozen && a.Synced() {
			a.parts.PodConfig.Freeze()
			frozen = true
		}
		pods := a.Pods()
		if !frozen || slices.ContainsFunc(pods, unsettled) {
			continue
		}
		cancel()
		if err := <-ended; err != nil {
			return report(pods), err
		}
		return report(pods), failures(pods)
	}
}

func unsettled(pod *v1.Pod) bool {
	switch pod.Status.Phase {
	case v1.PodRunning, v1.PodSucceeded, v1.PodFailed:
		return false
	default:
		return true
	}
}

func report(pods []*v1.Pod) Report {
	r := make(Report, 0, len(pods))
	for _, pod := range pods {
		r = append(r, PodReport{Pod: pod.Namespace + "/" + pod.Name, Phase: pod.Status.Phase,
			Message: why(&pod.Status)})
	}
	slices.SortFunc(r, func(x, y PodReport) int { return strings.Compare(x.Pod, y.Pod) })
	return r
}

// why returns the message of a status that explains most.
func why(s *v1.PodStatus) string {
	if s.Phase == v1.PodRunning || s.Phase == v1.PodSucceeded {
		return ""
	}
	if s.Message != "" {
		return s.Message
	}
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Message != "":
			return c.Name + ": " + c.State.Waiting.Reason + ": " + c.State.Waiting.Message
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			return fmt.Sprintf("%s: %s, exit code %d", c.Name, c.State.Terminated.Reason, c.State.Terminated.ExitCode)
		}
	}
	return s.Reason
}

func failures(pods []*v1.Pod) error {
	var errs []error
	for _, pod := range pods {
		if pod.Status.Phase == v1.PodFailed {
			errs = append(errs, fmt.Errorf("pod %s/%s failed: %s", pod.Namespace, pod.Name, why(&pod.Status)))
		}
	}
	return errors.Join(errs...)
}

// LockRoot makes the root directory and locks it, as [Agent.Run] does. It refuses a directory to
// which other users can write: they could plant records of pods and processes. The lock ends with
// unlock, or with the process, however it ends. It is for programs that change the directory while no agent runs.
func LockRoot(ctx context.Context, dir string) (unlock func(), err error) {
	if err := safefile.MakeDir(dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the root directory (Options.RootDir): %w", err)
	}
	f, err := safefile.LockSoon(ctx, filepath.Join(dir, "lock"))
	if errors.Is(err, safefile.ErrLocked) {
		return nil, fmt.Errorf("root directory %s is in use by another agent; stop it, or give this one a directory "+
			"of its own: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the root directory: %w", err)
	}
	return func() { safefile.Unlock(f) }, nil
}

// logsLock is the name of the lock file in the pod logs directory. It is there and not in
// the root directory because the agents that share the logs have root directories of their
// own. The directory itself is not locked: every user that can read it could hold the lock.
const logsLock = ".kubeletkit.lock"

// lockLogs makes the pod logs directory and locks it for this agent: of two agents
// with one directory, each would take the logs of the other's pods for those of pods
// that are gone, and remove them. If this user may not make the directory or write to it,
// the agent cannot remove anything from it, and goes on without a lock.
func lockLogs(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil && !notOurs(err) {
		return nil, fmt.Errorf("making the pod logs directory (Options.Host.PodLogsDir): %w", err)
	}
	f, err := safefile.LockSoon(ctx, filepath.Join(dir, logsLock))
	switch {
	case errors.Is(err, safefile.ErrLocked):
		return nil, fmt.Errorf("pod logs directory %s is in use by another agent, and each would remove the logs of "+
			"the other's pods; give this one a directory of its own, by podLogsDir of the configuration or "+
			"Options.Host.PodLogsDir: %w", dir, err)
	case notOurs(err), errors.Is(err, fs.ErrNotExist): // it could not be made
		return func() {}, nil
	case err != nil:
		return nil, fmt.Errorf("locking the pod logs directory: %w", err)
	}
	return func() { safefile.Unlock(f) }, nil
}

// notOurs reports whether the error means that this user may not write there.
func notOurs(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}
