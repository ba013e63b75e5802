package podconfig

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
)

// The back-off between two runs of what fails. A run of maxRestartDelay or
// longer counts as health and starts it anew.
const (
	minRestartDelay = time.Second
	maxRestartDelay = time.Minute
)

// supervise runs a source until ctx ends or the source is complete.
func supervise(ctx context.Context, logger logr.Logger, source Source, sink Sink) {
	var restarts backOff
	for {
		began := time.Now()
		delivered, err := runOnce(ctx, source, sink)
		switch {
		case ctx.Err() != nil:
			if err != nil && context.Cause(ctx) != err && ctx.Err() != err {
				logger.V(1).Info("Pod source ended with an error", "error", err.Error())
			}
			return
		case err == nil && delivered:
			logger.V(1).Info("Pod source is complete; its pods stay")
			return
		case err == nil:
			err = fmt.Errorf("source %q ended without ever delivering its pods", source.Name())
		}
		delay := restarts.after(began)
		logger.Error(err, "Pod source failed; the pods it named stay, and it is run again", "retryIn", delay)
		if !sleep(ctx, delay) {
			return
		}
	}
}

// backOff is the pause before what fails is run again. Its zero value is ready.
type backOff struct{ last time.Duration }

// after returns the pause that follows a run which began at the time.
func (b *backOff) after(began time.Time) time.Duration {
	if time.Since(began) >= maxRestartDelay {
		b.last = 0
	}
	b.last = min(max(2*b.last, minRestartDelay), maxRestartDelay)
	return b.last
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

// runOnce runs the source once. A panic becomes an error with its stack. What the
// source says after it has returned is ignored.
func runOnce(ctx context.Context, source Source, sink Sink) (delivered bool, err error) {
	run := &runSink{sink: sink}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("source %q panicked: %v\n%s", source.Name(), r, debug.Stack())
		}
		delivered = run.end()
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return delivered, source.Run(ctx, run)
}

// runSink passes on what a source says during one run.
type runSink struct {
	sink Sink

	mu        sync.Mutex
	delivered bool // there was a Set
	over      bool
}

func (s *runSink) Set(pods []*v1.Pod) { s.pass(func() { s.delivered = true; s.sink.Set(pods) }) }

func (s *runSink) Apply(d Delta) { s.pass(func() { s.sink.Apply(d) }) }

func (s *runSink) NodeName() string { return s.sink.NodeName() }

func (s *runSink) pass(say func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		say()
	}
}

// end has the sink ignore what comes, and reports whether there was a Set.
func (s *runSink) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.delivered
}
