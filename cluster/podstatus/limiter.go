package podstatus

import (
	"context"
	"slices"
	"sync"
	"time"
)

// limiter is a token bucket for requests: burst at once, and qps a second on average. A qps below 0
// is no limit. Of the requests that wait, urgent ones come first, otherwise those that came first.
type limiter struct {
	qps, burst float64

	mu sync.Mutex
	// tokens is the number of tokens at the time at. It is not negative.
	tokens float64
	at     time.Time
	// waiting has the requests that wait, the urgent ones in [1]. A channel is closed when
	// its request has got a token.
	waiting [2][]chan struct{}
	timer   *time.Timer // runs while a request waits; nil if none does
}

func newLimiter(qps float64, burst int) *limiter {
	return &limiter{qps: qps, burst: float64(burst), tokens: float64(burst)}
}

// wait waits for a token. It returns the cause of ctx if ctx ends before.
func (l *limiter) wait(ctx context.Context, urgent bool) error {
	if l.qps < 0 {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	l.refill(time.Now())
	if l.tokens >= 1 && l.timer == nil {
		l.tokens--
		l.mu.Unlock()
		return context.Cause(ctx)
	}
	class := 0
	if urgent {
		class = 1
	}
	got := make(chan struct{})
	l.waiting[class] = append(l.waiting[class], got)
	l.schedule()
	l.mu.Unlock()

	select {
	case <-got:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting[class], got); i >= 0 {
		l.waiting[class] = slices.Delete(l.waiting[class], i, i+1)
	} else {
		l.tokens++ // it was given a token that it does not use
	}
	return context.Cause(ctx)
}

func (l *limiter) refill(now time.Time) {
	if !l.at.IsZero() {
		l.tokens = min(l.burst, l.tokens+now.Sub(l.at).Seconds()*l.qps)
	}
	l.at = now
}

// schedule starts the timer for the next token, if a request waits.
func (l *limiter) schedule() {
	if l.timer != nil || len(l.waiting[0])+len(l.waiting[1]) == 0 {
		return
	}
	need := max(0, 1-l.tokens)
	l.timer = time.AfterFunc(time.Duration(need/l.qps*float64(time.Second))+1, l.serve)
}

// serve gives tokens to requests that wait.
func (l *limiter) serve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	l.refill(time.Now())
	for _, class := range []int{1, 0} {
		for len(l.waiting[class]) > 0 && l.tokens >= 1 {
			close(l.waiting[class][0])
			l.waiting[class] = l.waiting[class][1:]
			l.tokens--
		}
	}
	l.schedule()
}
