package flow

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/go-logr/logr"
)

// Guard recovers panics of the methods of one value. It is safe for concurrent use.
type Guard struct {
	log    logr.Logger
	logged sync.Map // method names
}

// NewGuard returns a guard that logs the first panic of each method. Measurements are frequent,
// so that the others are not logged.
func NewGuard(log logr.Logger) *Guard { return &Guard{log: log} }

// Recover recovers a panic of the method, in a deferred call:
//
//	func (g guarded) Counted(n int) {
//		defer g.Recover("Counted")
//		g.Metrics.Counted(n)
//	}
func (g *Guard) Recover(method string) {
	v := recover()
	if v == nil {
		return
	}
	if _, again := g.logged.LoadOrStore(method, true); !again {
		g.log.Error(fmt.Errorf("panic: %v", v), "Callback has panicked; it is called again, and further panics of it are not logged",
			"callback", "Metrics."+method, "stack", string(debug.Stack()))
	}
}
