package cri

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
)

// lingering is how long a call that starts something may go on after its context
// has ended. Runtimes need a tenth of it if nothing is wrong.
const lingering = 3 * time.Second

// begin makes a call that starts something, as [call] does. Unlike others it is not cut
// off as soon as ctx ends, which may be only because the agent stops: runtimes are poor
// at undoing what they have half done. A StartContainer that is cut off in containerd 2.4
// leaves a container that cannot be removed for seconds, and sometimes not until
// containerd is restarted (containerd#11037).
func begin[Q, R any](
	ctx context.Context, r *Runtime, name, about string, extra time.Duration,
	method func(context.Context, Q, ...grpc.CallOption) (R, error), req Q,
) (R, error) {
	var none R
	if ctx.Err() != nil {
		return none, fmt.Errorf("%s: %s: %w", about, name, ended(ctx))
	}
	longer, stop := linger(ctx, lingering)
	defer stop()
	longer, cancel := context.WithTimeout(longer, r.opts.CallTimeout+extra)
	defer cancel()
	resp, err := method(longer, req)
	if err != nil {
		return none, wrapCall(name, about, err, cmp.Or(ctx.Err(), longer.Err()))
	}
	return resp, nil
}

// linger returns a context that ends a while after the given one, or with stop,
// which must be called.
func linger(ctx context.Context, while time.Duration) (longer context.Context, stop func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	unused := context.AfterFunc(ctx, func() {
		defer close(over)
		t := time.NewTimer(while)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() {
		cancel()
		if !unused() {
			<-over
		}
	}
}
