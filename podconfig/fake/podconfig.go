package fake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// ErrEnded is returned by [Config.Push] when Run has ended.
var ErrEnded = errors.New("the stream of changes has ended")

// Config is a [podconfig.Config] whose changes a test sends. It has no sources and
// does not check the changes. It is safe for concurrent use.
type Config struct {
	podconfig.Base

	changes      chan podconfig.Change // unbuffered: Push waits for the reader
	started      atomic.Bool
	sourcesReady atomic.Bool

	ended chan struct{} // closed when Run ends
	// pushes waits for the calls of Push, so that changes is closed after them.
	pushes sync.RWMutex
}

var _ podconfig.Config = (*Config)(nil)

// NewConfig returns a stream without changes, of sources that have not been seen.
func NewConfig() *Config {
	return &Config{changes: make(chan podconfig.Change), ended: make(chan struct{})}
}

// Push sends a change. It returns nil when the reader has received it, the cause of the
// end of ctx, or [ErrEnded].
func (c *Config) Push(ctx context.Context, change podconfig.Change) error {
	c.pushes.RLock()
	defer c.pushes.RUnlock()
	select {
	case <-c.ended: // changes may be closed
		return ErrEnded
	default:
	}
	select {
	case c.changes <- change:
		return nil
	case <-c.ended:
		return ErrEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// SetSourcesReady sets what SourcesReady returns.
func (c *Config) SetSourcesReady(seen bool) { c.sourcesReady.Store(seen) }

// Run implements [podconfig.Config].
func (c *Config) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return fmt.Errorf("podconfig fake: %w", runtime.ErrAlreadyRunning)
	}
	<-ctx.Done()
	close(c.ended)
	c.pushes.Lock()
	defer c.pushes.Unlock()
	close(c.changes)
	return nil
}

// Changes implements [podconfig.Config].
func (c *Config) Changes() <-chan podconfig.Change { return c.changes }

// SourcesReady implements [podconfig.Config].
func (c *Config) SourcesReady() bool { return c.sourcesReady.Load() }
