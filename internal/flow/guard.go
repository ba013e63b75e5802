package flow

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/go-logr/logr"
)

// Guarded holds the Metrics M of an embedder, whose methods can only be called with their panics recovered. The
// zero value holds none. It is safe for concurrent use.
type Guarded[M any] struct {
	metrics M
	log     logr.Logger
	logged  sync.Map // method names
}

// Guard returns a guard of the metrics, which may be nil. It logs the first panic of each method. Measurements are
// frequent, so that the others are not logged.
func Guard[M any](metrics M, log logr.Logger) *Guarded[M] {
	return &Guarded[M]{metrics: metrics, log: log}
}

// Call calls f, which calls the method. If there are no metrics, f is not called:
//
//	p.metrics.Call("Counted", func(m Metrics) { m.Counted(p.count()) })
func (g *Guarded[M]) Call(method string, f func(M)) {
	if any(g.metrics) == nil {
		return
	}
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if _, again := g.logged.LoadOrStore(method, true); !again {
			g.log.Error(fmt.Errorf("panic: %v", v), "Callback has panicked; it is called again, and further panics of it are not logged",
				"callback", "Metrics."+method, "stack", string(debug.Stack()))
		}
	}()
	f(g.metrics)
}
