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
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
	"github.com/kubeletkit/kubeletkit/node/shutdown/logind"
)

// gracefulShutdown has the machine wait until the pods have ended. It is nil if the settings do not ask for it.
type gracefulShutdown struct {
	periods shutdown.Periods
	manager *shutdown.Manager // set by kubeletkit.New
	joins   *member           // set before the agent runs
}

func newGracefulShutdown(s *config.Settings) *gracefulShutdown {
	periods := s.ShutdownPeriods()
	if len(periods) == 0 || s.RunOnce {
		return nil
	}
	return &gracefulShutdown{periods: periods}
}

// changed has a node of a cluster report at once that it is not ready, or ready again.
func (g *gracefulShutdown) changed() {
	if g.joins != nil {
		g.joins.Update()
	}
}

// configure makes it a component of the agent. It comes before the checks of a cluster: a pod that is
// refused evicts no others. The membership of a cluster may be nil.
func (g *gracefulShutdown) configure(opts *kubeletkit.Options, s *config.Settings, joins *member,
	m *metrics, log logr.Logger) {
	if g == nil {
		return
	}
	g.joins = joins
	opts.Join = append(opts.Join, kubeletkit.WithAgent(func(agent *kubeletkit.Agent) (lifecycle.Component, error) {
		end := func(ctx context.Context, p shutdown.Periods) ([]*v1.Pod, error) { return agent.EndPods(ctx, p) }
		agent.AddReadyCheck("shutdown", g.shuttingDown)
		var err error
		g.manager, err = shutdown.New(g.periods, logind.New(logind.Options{Who: "minikubelet"}), end, shutdown.Options{
			StateDir: s.ShutdownStateDir(), Changed: g.changed, Metrics: m.shutdown, Logger: log.WithName("shutdown"),
			Event: agent.Parts().Event,
		})
		return g.manager, err
	}))
}

// shuttingDown returns an error while the machine shuts down.
func (g *gracefulShutdown) shuttingDown() error { return g.manager.ShuttingDown() }

// checks returns the ready checks of the node.
func (g *gracefulShutdown) checks() []func() error {
	if g == nil {
		return nil
	}
	return []func() error{g.shuttingDown}
}

// The causes of the end of a context of signals.
var (
	errInterrupted = errors.New("interrupt")
	errTerminated  = errors.New("SIGTERM")
)

// withSignals returns a context that ends with the first SIGINT or SIGTERM. A second one ends the process at once. The
// caller calls stop.
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
	log.Info("SIGTERM: pods end in the order of their priorities, and then the agent; a second signal ends the " +
		"agent at once")
	if err := agent.DrainByPriority(ctx, s.DrainPeriods()); err != nil {
		log.Error(err, "Not all pods have ended")
	}
}
