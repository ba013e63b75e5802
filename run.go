package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
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

	a.log.Info("Agent starts", "node", a.opts.NodeName, "rootDir", a.opts.RootDir, "podLogsDir", a.parts.Host.PodLogsDir)
	if a.opts.ShareRootDir {
		if err := volume.Share(a.opts.RootDir); err != nil {
			a.log.Info("Root directory is not on a shared mount: containers with the mount propagation HostToContainer or Bidirectional of a path in it do not start", "reason", err.Error())
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
		{"status manager", p.Status.Run}, {"prober", p.Prober.Run}, {"pod workers", p.PodWorkers.Run}, {"PLEG", p.PLEG.Run},
		{"garbage collector", p.GC.Run}, {"pod syncer", func(ctx context.Context) error { return p.PodSyncer.Run(ctx, p.PodWorkers) }}, {"pod configuration", p.PodConfig.Run}, {"sync loop", a.loop.Run},
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
	a.parts.Event.Emit(runtime.Event{Type: v1.EventTypeWarning, Reason: "KubeletSetupFailed", Message: err.Error(), Logged: true}) // it is the error of Run
	flow.WaitForObservers(a.observers...)
	return fmt.Errorf("kubeletkit: %w", err)
}

// warnNode emits a warning about the node.
func (a *Agent) warnNode(reason, message string) {
	a.parts.Event.Emit(runtime.Event{Type: v1.EventTypeWarning, Reason: reason, Message: message})
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
