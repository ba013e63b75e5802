package podstatus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// Run makes the calls that are not part of Deliver or PodGone until ctx ends. It returns nil
// after all of them have returned. A second call returns an error that wraps
// [runtime.ErrAlreadyRunning].
func (s *Sink) Run(ctx context.Context) error {
	s.mu.Lock()
	again := s.started
	s.started = true
	s.mu.Unlock()
	if again {
		return fmt.Errorf("podstatus: %w", runtime.ErrAlreadyRunning)
	}
	var calls sync.WaitGroup
	defer flow.Wait(&calls, flow.Late, func() {
		s.log.Error(nil, "The status sink cannot stop: a call of the API server has not returned although its context has ended")
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	ended := outage.Ended(s.client)
	for ctx.Err() == nil {
		due, next := s.due(time.Now())
		for _, e := range due {
			calls.Go(func() { s.repeat(ctx, e) })
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		case <-ended:
			ended = outage.Ended(s.client)
			s.mu.Lock()
			s.breaker = breaker{}
			for _, e := range s.entries {
				if e.unsent {
					e.sendAgain = time.Time{}
				}
			}
			s.repeatFailed(time.Now())
			s.mu.Unlock()
		}
	}
	return nil
}

// due takes the entries from the agenda whose time has come, and returns those of them that no
// attempt waits for yet. next is the time of the others, zero if there are none.
func (s *Sink) due(now time.Time) (due []*entry, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	probe, next := s.takeProbe(now)
	if probe != nil {
		s.agenda[probe] = now
	}
	for e, at := range s.agenda {
		switch {
		case !at.After(now):
			delete(s.agenda, e)
			if !e.queued {
				e.queued = true
				due = append(due, e)
			}
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return due, next
}

// repeat syncs an entry of the agenda, and puts it there again if that fails.
func (s *Sink) repeat(ctx context.Context, e *entry) {
	done, err := e.take(ctx)
	if err != nil {
		return // ctx has ended
	}
	s.mu.Lock()
	e.queued = false
	s.mu.Unlock()
	_, err = s.syncLocked(ctx, e)
	done()
	if err == nil || ctx.Err() != nil || errors.Is(err, errNotReady) || errors.Is(err, status.ErrGone) {
		return
	}
	s.mu.Lock()
	failures, refusals := e.failures, e.refusals
	s.mu.Unlock()
	if barred := (*barredError)(nil); errors.As(err, &barred) {
		if refusals <= 1 {
			s.log.Error(err, "A static pod has no mirror pod, trying again less and less often")
		}
		return // it is on the agenda
	}
	after := s.backoff.After(failures)
	if failures <= 1 {
		s.log.Error(err, "A pod in the API server is not as it is to be, trying again", "after", after)
	} else {
		s.log.V(2).Info("A pod in the API server is not as it is to be, trying again", "error", err.Error(), "after", after, "failures", failures)
	}
	s.later(e, after)
}

// plan has Run sync the entry, at the time or before. s.mu is held.
func (s *Sink) plan(e *entry, at time.Time) {
	if old, ok := s.agenda[e]; !ok || at.Before(old) {
		s.agenda[e] = at
	}
}

// poke wakes Run.
func (s *Sink) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// later has Run sync the entry after the duration.
func (s *Sink) later(e *entry, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.forgotten {
		s.plan(e, time.Now().Add(d))
	}
	s.poke()
}
