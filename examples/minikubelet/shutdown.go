package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/resources/shutdown"
	"github.com/kubeletkit/kubeletkit/resources/shutdown/logind"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// gracefulShutdown has the machine wait until the pods have ended. It is nil if the settings do not ask for it.
type gracefulShutdown struct {
	*shutdown.Manager
	// agent and joins are set before the agent runs.
	agent *kubeletkit.Agent
	joins *member
}

func newGracefulShutdown(s *config.Settings, m *metrics, log logr.Logger) (*gracefulShutdown, error) {
	periods := s.ShutdownPeriods()
	if len(periods) == 0 || s.RunOnce {
		return nil, nil
	}
	g := &gracefulShutdown{}
	end := func(ctx context.Context, p shutdown.Periods) ([]*v1.Pod, error) { return g.agent.EndPods(ctx, p) }
	var err error
	g.Manager, err = shutdown.New(periods, logind.New(logind.Options{Who: "minikubelet"}), end, shutdown.Options{
		StateDir: s.ShutdownStateDir(), Changed: g.changed, Metrics: m.shutdown, Logger: log.WithName("shutdown"),
		Event: func(e runtime.Event) { g.agent.Parts().Event.Emit(e) },
	})
	return g, err
}

// changed has a node of a cluster report at once that it is not ready, or ready again.
func (g *gracefulShutdown) changed() {
	if g.joins != nil {
		g.joins.Update()
	}
}

// configure makes it a component of the agent. It comes before the checks of a cluster: a pod that is
// refused evicts no others.
func (g *gracefulShutdown) configure(opts *kubeletkit.Options) {
	if g != nil {
		opts.Join = append(opts.Join, g.Manager)
	}
}

// checks returns the ready checks of the node.
func (g *gracefulShutdown) checks() []func() error {
	if g == nil {
		return nil
	}
	return []func() error{g.ShuttingDown}
}

// attach gives it the agent, and the membership of a cluster, which may be nil.
func (g *gracefulShutdown) attach(agent *kubeletkit.Agent, joins *member) {
	if g != nil {
		g.agent, g.joins = agent, joins
		agent.AddReadyCheck("shutdown", g.ShuttingDown)
	}
}

// The causes of the end of a context of signals.
var (
	errInterrupted = errors.New("interrupt")
	errTerminated  = errors.New("SIGTERM")
)

// withSignals returns a context that ends with the first SIGINT or SIGTERM. A second one ends the process at once. The caller
// calls stop.
func withSignals(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	received := make(chan os.Signal, 1) // the first one; others end the process
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(received)
		select {
		case s := <-received:
			if s == syscall.SIGTERM {
				cancel(errTerminated)
			} else {
				cancel(errInterrupted)
			}
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// drainsFirst returns the context of an agent with --drain-on-term: signals do not end it. The caller calls cancel.
func drainsFirst(signals context.Context, s *config.Settings) (ctx context.Context, cancel context.CancelFunc) {
	if !s.DrainOnTerm || s.RunOnce {
		return context.WithCancel(signals)
	}
	return context.WithCancel(context.WithoutCancel(signals))
}

// drainOnTerm waits until a signal is received or ctx ends. After a SIGTERM it ends the pods in the order of a
// shutdown.
func drainOnTerm(ctx, signals context.Context, s *config.Settings, agent *kubeletkit.Agent, log logr.Logger) {
	select {
	case <-ctx.Done():
		return
	case <-signals.Done():
	}
	if ctx.Err() != nil || !errors.Is(context.Cause(signals), errTerminated) {
		return
	}
	log.Info("SIGTERM: pods end in the order of their priorities, and then the agent; a second signal ends the agent at once")
	if err := agent.DrainByPriority(ctx, s.DrainPeriods()); err != nil {
		log.Error(err, "Not all pods have ended")
	}
}
