package kubelet

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
	"github.com/kubeletkit/kubeletkit/node/shutdown/logind"
)

// addShutdown has the machine wait until the pods have ended, if the settings ask for it.
func addShutdown(opts *kubeletkit.Options, s *config.Settings) error {
	periods := s.ShutdownPeriods()
	if len(periods) == 0 || s.RunOnce {
		return nil
	}
	manager, err := shutdown.New(periods, logind.New(logind.Options{Who: s.Program().String()}),
		shutdown.Options{StateDir: s.ShutdownStateDir()})
	if err != nil {
		return err
	}
	opts.Join = append(opts.Join, manager)
	return nil
}

// ErrTerminated is the cause of the end of a context that ends with SIGTERM, for [Kubelet.Run].
var ErrTerminated = errors.New("SIGTERM")

// errInterrupted is the cause of the end of a context that ends with SIGINT.
var errInterrupted = errors.New("interrupt")

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
				cancel(ErrTerminated)
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
	if ctx.Err() != nil || !errors.Is(context.Cause(signals), ErrTerminated) {
		return
	}
	log.Info("SIGTERM: pods end in the order of their priorities, and then the agent")
	if err := agent.DrainByPriority(ctx, s.DrainPeriods()); err != nil {
		log.Error(err, "Not all pods have ended")
	}
}
