package dra

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// locks has a lock for each claim that is being worked on.
type locks struct {
	mu   sync.Mutex
	held map[key]chan struct{} // closed when the lock is released
}

// lock locks the claims, which are sorted and differ, so that two pods cannot wait for each other. It fails if ctx
// ends.
func (l *locks) lock(ctx context.Context, keys []key) (unlock func(), err error) {
	for i, k := range keys {
		for {
			l.mu.Lock()
			other, held := l.held[k]
			if !held {
				if l.held == nil {
					l.held = map[key]chan struct{}{}
				}
				l.held[k] = make(chan struct{})
			}
			l.mu.Unlock()
			if !held {
				break
			}
			select {
			case <-other:
			case <-ctx.Done():
				l.unlock(keys[:i])
				return nil, fmt.Errorf("waiting for another pod with ResourceClaim %s: %w", k.name, flow.Ended(ctx))
			}
		}
	}
	return func() { l.unlock(keys) }, nil
}

func (l *locks) unlock(keys []key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range slices.Backward(keys) {
		close(l.held[k])
		delete(l.held, k)
	}
}
