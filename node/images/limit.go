package images

import (
	"context"
	"math"

	"golang.org/x/time/rate"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// limit bounds the number of concurrent pulls and their rate.
type limit struct {
	// slots has the bound as its capacity; nil means no bound.
	slots chan struct{}
	// rate bounds how many begin in a second; nil means no bound. kubelet fails a pull above it, so that its image is
	// in back-off although its registry is well.
	rate *rate.Limiter
}

func newLimit(opts *Options) limit {
	var l limit
	n := opts.MaxParallel
	if opts.Serial {
		n = 1
	}
	if n > 0 {
		l.slots = make(chan struct{}, n)
	}
	if opts.QPS > 0 && !math.IsInf(opts.QPS, 1) { // nor not a number
		l.rate = rate.NewLimiter(rate.Limit(opts.QPS), max(opts.Burst, 1))
	}
	return l
}

// acquire waits until the rate allows a pull, and for a slot. release must be called.
func (l *limit) acquire(ctx context.Context) (release func(), err error) {
	if l.rate != nil {
		token := l.rate.Reserve() // Wait fails at once if ctx has a deadline that is too early
		if !flow.Sleep(ctx, token.Delay()) {
			token.Cancel()
			return nil, flow.Ended(ctx)
		}
	}
	if l.slots == nil {
		return func() {}, nil
	}
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	case <-ctx.Done():
		return nil, flow.Ended(ctx)
	}
}
