package fake

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// Fault is a fault of calls. Several faults can strike one call, in the order in which
// they were injected; the first error ends it.
type Fault struct {
	// Call is the name of the CRI call, such as "StartContainer"; "" means all. The name
	// of a list, such as "ListContainers", also means the streamed list.
	Call string
	// Target of the call. Calls that are not about a pod, such as Status and the lists
	// of everything, match only an empty target.
	Target Target
	// Skip is the number of matching calls that pass first. Times is the number of calls
	// that the fault strikes then; 0 means all.
	Skip, Times int

	// Delay is added to the duration of the call.
	Delay time.Duration
	// Hang makes the call wait until its context ends, the runtime is stopped, or the
	// fault is removed.
	Hang bool
	// Err is the error of the call. For an error of package runtime, such as
	// runtime.ErrUnavailable, the client gets the corresponding gRPC status; it gets
	// gRPC errors unchanged, and of other errors the text.
	Err error
	// Late makes the fault strike after the call was executed. With Err, its answer is
	// lost.
	Late bool
}

type fault struct {
	Fault
	seen int
	// removed is closed when the fault is removed.
	removed chan struct{}
}

// hits counts a call that begins, and reports whether the fault strikes it. The
// service's mu is held.
func (f *fault) hits(c *Call) bool {
	if f.Call != "" && f.Call != c.Method && f.Call != listStreams()[c.Method] ||
		!f.Target.matches(c.Pod, c.Container, c.Image) {
		return false
	}
	f.seen++
	return f.seen > f.Skip && (f.Times == 0 || f.seen <= f.Skip+f.Times)
}

// strike applies the faults before the call or, if late, those after it.
func strike(ctx context.Context, faults []*fault, late bool) error {
	for _, f := range faults {
		if f.Late != late {
			continue
		}
		if f.Delay > 0 {
			if err := pause(ctx, f.Delay); err != nil {
				return err
			}
		}
		if f.Hang {
			select {
			case <-f.removed:
			case <-ctx.Done():
				return status.FromContextError(ctx.Err()).Err()
			}
		}
		if f.Err != nil {
			return f.Err
		}
	}
	return nil
}

// pause waits, or returns the error of a context that ends before.
func pause(ctx context.Context, d time.Duration) error {
	if !flow.Sleep(ctx, d) {
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// Inject applies the fault to calls that begin from now on, until remove is called.
// remove may be called more than once.
func (r *Runtime) Inject(f Fault) (remove func()) {
	s, in := r.s, &fault{Fault: f, removed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, in)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = slices.DeleteFunc(s.faults, func(f *fault) bool { return f == in })
		close(in.removed)
	})
}
