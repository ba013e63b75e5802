package flow

import (
	"context"
	"sync"
)

// Locks has a lock for each key that is in use. The zero value is ready. It is safe for concurrent use.
type Locks struct {
	mu sync.Mutex
	// held has a channel for each key that is locked. It is closed when the key is unlocked.
	held map[string]chan struct{}
}

// Lock waits until no other call has the key, or until ctx ends, and returns the cause then. The key is locked until
// unlock is called.
func (l *Locks) Lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		free, held := l.held[key]
		if !held {
			free = make(chan struct{})
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			l.held[key] = free
		}
		l.mu.Unlock()
		if !held {
			return func() {
				l.mu.Lock()
				delete(l.held, key)
				l.mu.Unlock()
				close(free)
			}, nil
		}
		select {
		case <-free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Locked reports whether the key is locked.
func (l *Locks) Locked(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[key] != nil
}

// Idle reports whether no key is locked.
func (l *Locks) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held) == 0
}
