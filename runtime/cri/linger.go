package cri

import (
	"context"
	"time"
)

// lingering is how long what has begun to start may go on after its context has ended.
// Runtimes need a tenth of it if nothing is wrong.
const lingering = 3 * time.Second

// lingers is the key of the context for which another one lingers.
type lingers struct{}

// linger returns a context that ends some time after the given one, or with stop, which
// must be called. Under it is done what is not to be cut off as soon as ctx ends,
// which may be only because the agent stops: runtimes are poor at undoing what they have
// half done. A StartContainer that is cut off in containerd 2.4 leaves a container
// that cannot be removed for seconds, and sometimes not until containerd is restarted
// (containerd#11037). And a container that runs gets its postStart hook now or never.
func linger(ctx context.Context) (longer context.Context, stop func()) {
	longer, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), lingers{}, ctx))
	over := make(chan struct{})
	unused := context.AfterFunc(ctx, func() {
		defer close(over)
		t := time.NewTimer(lingering)
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

// errOf is why a call under ctx was or would be given up, nil if it is not: what the
// caller sees is the end of the context that he has given.
func errOf(ctx context.Context) error {
	if given, ok := ctx.Value(lingers{}).(context.Context); ok && given.Err() != nil {
		return given.Err()
	}
	return ctx.Err()
}
