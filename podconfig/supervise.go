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

// The back-off between two runs of a failing source. A run of maxRestartDelay or
// longer counts as health and starts it anew.
const (
	minRestartDelay = time.Second
	maxRestartDelay = time.Minute
)

// supervise runs a source until ctx ends or the source is complete.
func supervise(ctx context.Context, logger logr.Logger, source Source, set func([]*v1.Pod)) {
	for delay := minRestartDelay; ; delay = min(2*delay, maxRestartDelay) {
		began := time.Now()
		delivered, err := runOnce(ctx, source, set)
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
		if time.Since(began) >= maxRestartDelay {
			delay = minRestartDelay
		}
		logger.Error(err, "Pod source failed; the pods it named stay, and it is run again", "retryIn", delay)
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// runOnce runs the source once. A panic becomes an error with its stack. What the
// source sets after it has returned is ignored.
func runOnce(ctx context.Context, source Source, set func([]*v1.Pod)) (delivered bool, err error) {
	var mu sync.Mutex
	over := false
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("source %q panicked: %v\n%s", source.Name(), r, debug.Stack())
		}
		mu.Lock()
		over = true
		mu.Unlock()
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = source.Run(ctx, func(pods []*v1.Pod) {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			delivered = true
			set(pods)
		}
	})
	mu.Lock()
	defer mu.Unlock()
	return delivered, err
}
