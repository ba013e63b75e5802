package cri

import (
	"context"
	"time"
)

// lingering is the time that a start in progress may take after its context has ended.
// A healthy runtime needs a tenth of it.
const lingering = 3 * time.Second

// lingers is the context key of the context that linger has extended.
type lingers struct{}

// linger returns a context that ends some time after ctx, or with stop, which must be
// called. It is for calls that should not be cut off as soon as ctx ends, which may only
// mean that the agent stops: runtimes do not clean up well after such calls. A
// StartContainer that is cut off in containerd 2.4 leaves a container that cannot be
// removed for seconds, and sometimes not until containerd is restarted
// (containerd#11037). And a postStart hook that is cut off is run a second time by the next
// agent.
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

// errOf returns the error of ctx or, if linger has extended another context, of that
// one, which is the context of the caller.
func errOf(ctx context.Context) error {
	if given, ok := ctx.Value(lingers{}).(context.Context); ok && given.Err() != nil {
		return given.Err()
	}
	return ctx.Err()
}
