package kubelet

import (
	"os"
	"runtime/debug"
	"time"
)

// saveMemory lets the garbage collector run when the heap has grown by half, instead of
// to twice its size: an agent makes little garbage, and the memory that it holds is
// missing on the node. GOGC and GOMEMLIMIT win.
func saveMemory() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(50)
	}
}

// restAfter is the time without an event after which a rush is over.
const restAfter = 10 * time.Second

// releaser gives memory back to the system after a rush. The start of many pods leaves behind
// garbage and free pages; Go's runtime keeps a part of these for good, which an agent at rest
// does not need. It costs nothing while nothing happens. Make one with [newReleaser].
type releaser struct {
	timer *time.Timer
}

// newReleaser returns a releaser that calls release when noted was not called for restAfter, once
// after each rush. The start of the agent is the first rush.
func newReleaser(release func()) *releaser {
	return &releaser{time.AfterFunc(restAfter, release)}
}

// noted is called for each event. It does not block.
func (r *releaser) noted() { r.timer.Reset(restAfter) }

// stop prevents further releases. One may still run.
func (r *releaser) stop() { r.timer.Stop() }
