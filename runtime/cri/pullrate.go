package cri

import (
	"context"
	"sync"
	"time"
)

// pullRate limits the rate of pulls: a bucket of tokens, of which each pull takes one.
type pullRate struct {
	interval time.Duration // from one token to the next
	burst    int

	mu sync.Mutex
	// full is when the bucket is full again if nothing is taken. It is in the past while it
	// is full.
	full time.Time
}

// Limits of a pullRate, so that its times do not overflow.
const (
	maxPullInterval = 365 * 24 * time.Hour
	maxPullBursts   = 100 * maxPullInterval // a burst and its interval multiplied
)

// newPullRate returns a limit of qps pulls a second and bursts of that many; nil if qps is
// not positive, which means no limit.
func newPullRate(qps float64, burst int) *pullRate {
	if !(qps > 0) { // also if it is not a number
		return nil
	}
	interval := maxPullInterval
	if ns := float64(time.Second) / qps; ns < float64(interval) {
		interval = time.Duration(ns)
	}
	if interval == 0 {
		return nil
	}
	return &pullRate{interval: interval, burst: min(max(burst, 1), int(maxPullBursts/interval))}
}

// wait waits for a token. kubelet fails the pull in its place, with "pull QPS exceeded",
// and the image is in back-off then although its registry is well.
func (p *pullRate) wait(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	now := time.Now()
	if p.full.Before(now) {
		p.full = now
	}
	p.full = p.full.Add(p.interval)
	due := p.full.Add(-time.Duration(p.burst) * p.interval)
	p.mu.Unlock()
	if !due.After(now) {
		return nil
	}
	t := time.NewTimer(due.Sub(now))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ended(ctx) // its token is lost: a cancelled pull delays the others by one interval
	}
}
