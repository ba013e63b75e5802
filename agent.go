package kubeletkit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// Agent is a node agent. Its methods are safe for concurrent use.
type Agent struct {
	opts  Options
	log   logr.Logger
	parts Parts
	loop  *syncloop.Loop
	// made is set when the agent has all its parts.
	made atomic.Bool
	// observers are the hooks of the options; Run waits for what they are to receive.
	observers []flow.Waiter

	mu      sync.Mutex
	started time.Time // when Run was called; zero before
	added   []component
	healthy []check
	ready   []check
}

// check is a health or ready check that was added.
type check struct {
	name string
	run  func() error
}

// component runs as long as the agent.
type component struct {
	name string
	run  func(ctx context.Context) error
}

// Parts returns the parts of the agent.
func (a *Agent) Parts() Parts { return a.parts }

// Add has run called with the agent's context when the agent runs, and waited for when
// it stops, so that further components live and end with the agent. If run returns an
// error while the agent runs, the agent stops and Run returns it; nil is no error. A panic
// of run counts as an error. Add fails if run is nil, and once Run was called.
//
// An HTTP server, for example, is such a component:
//
//	err := agent.Add("HTTP server", func(ctx context.Context) error {
//		return server.Serve(ctx, listener, server.Handler(agent, server.Options{}))
//	})
func (a *Agent) Add(name string, run func(ctx context.Context) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.started.IsZero() {
		return fmt.Errorf("kubeletkit: adding component %q: %w", name, runtime.ErrAlreadyRunning)
	}
	if run == nil {
		return fmt.Errorf("kubeletkit: adding component %q: its function is nil", name)
	}
	a.added = append(a.added, component{name, run})
	return nil
}

// AddHealthCheck adds a check to [Agent.Healthy]. The check must return soon and be safe
// for concurrent use.
func (a *Agent) AddHealthCheck(name string, run func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.healthy = append(a.healthy, check{name, run})
}

// AddReadyCheck adds a check to [Agent.Ready]. The check must return soon and be safe for
// concurrent use.
func (a *Agent) AddReadyCheck(name string, run func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = append(a.ready, check{name, run})
}

// start reports whether this is the first call, and returns the added components.
func (a *Agent) start() ([]component, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.started.IsZero()
	if first {
		a.started = time.Now()
	}
	return a.added, first
}

func (a *Agent) named(part string) logr.Logger { return a.log.WithName(part) }

// logEvents returns an EventFunc that logs each event under its message: warnings at level 0, others and those that are
// logged already at level 2.
func logEvents(log logr.Logger) runtime.EventFunc {
	return func(e runtime.Event) {
		l := log
		if e.Logged || e.Type != v1.EventTypeWarning {
			l = log.V(2)
		}
		if !l.Enabled() {
			return
		}
		values := []any{"reason", e.Reason}
		if e.Pod.UID != "" { // else it is about the node
			values = append(values, "pod", e.Pod)
		}
		if e.FieldPath != "" {
			values = append(values, "path", e.FieldPath)
		}
		if e.Count > 1 {
			values = append(values, "count", e.Count)
		}
		l.Info(e.Message, values...)
	}
}
