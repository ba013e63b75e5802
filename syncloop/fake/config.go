package fake

import (
	"context"
	"sync"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// Config is a [syncloop.Config]. It is safe for concurrent use.
type Config struct {
	// changes has no room: who pushes waits for who takes.
	changes chan podconfig.Change
	closing sync.Once

	mu   sync.Mutex
	seen bool
}

var _ syncloop.Config = (*Config)(nil)

// NewConfig returns a stream without changes, of sources that have not all been seen.
func NewConfig() *Config { return &Config{changes: make(chan podconfig.Change)} }

// Push hands a change over. It returns when the change was taken, though not
// necessarily acted on, or with the context's error. It must not be called after Close.
func (c *Config) Push(ctx context.Context, change podconfig.Change) error {
	select {
	case c.changes <- change:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// See says that all sources have been seen.
func (c *Config) See() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = true
}

// Close ends the stream, which breaks its contract while a loop runs.
func (c *Config) Close() { c.closing.Do(func() { close(c.changes) }) }

// Changes implements [syncloop.Config].
func (c *Config) Changes() <-chan podconfig.Change { return c.changes }

// AllSeen implements [syncloop.Config].
func (c *Config) AllSeen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}
