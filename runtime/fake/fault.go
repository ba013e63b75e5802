package fake

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// Fault is something that goes wrong with calls. A call may meet several, one
// after the other in the order in which they were injected; the first error ends
// it.
type Fault struct {
	// Call is the name of the CRI call, as in "StartContainer"; "" stands for all. That
	// of a list, as in "ListContainers", stands for the streamed one too.
	Call string
	// Target that the call is about. Calls that are about no pod, such as Status and
	// the lists of everything, are matched by an empty target only.
	Target Target
	// Skip lets that many matching calls pass. Times is how many it strikes then; 0
	// stands for all.
	Skip, Times int

	// Delay is added to the call.
	Delay time.Duration
	// Hang makes the call wait until its context ends, the runtime is stopped, or the
	// fault is removed.
	Hang bool
	// Err is what the call fails with: one of package runtime's errors, as
	// runtime.ErrUnavailable, which a client then sees as such; an error of gRPC; or
	// any other, of which the text arrives.
	Err error
	// Late has the fault strike after the call was done: with Err, its answer is
	// lost.
	Late bool
}

type fault struct {
	Fault
	seen int
	// removed is closed when the fault is taken back.
	removed chan struct{}
}

// hits reports whether the fault strikes a call that begins. The service's mu is
// held.
func (f *fault) hits(c *Call) bool {
	if f.Call != "" && f.Call != c.Method && f.Call != listStreams()[c.Method] || !f.Target.matches(c.Pod, c.Container, c.Image) {
		return false
	}
	f.seen++
	return f.seen > f.Skip && (f.Times == 0 || f.seen <= f.Skip+f.Times)
}

// strike has faults take their effect: those before or those after the call.
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

// pause lets time pass.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// Inject has calls that begin from now on meet the fault, until remove is called,
// which may be done more than once.
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
