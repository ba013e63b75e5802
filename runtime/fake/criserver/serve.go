package criserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// Serve offers the runtime as a CRI v1 server on a listener until ctx ends; then it
// returns nil, with all calls ended and the listener closed. It may be called for
// several listeners, while the methods of the runtime are in use too. When the
// runtime is stopped ([fake.Runtime.Stop]) the listener stays, and calls fail with
// Unavailable.
func Serve(ctx context.Context, rt *fake.Runtime, l net.Listener) error {
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	rt.Register(srv)

	var stopped sync.WaitGroup
	sctx, cancel := context.WithCancel(ctx)
	stopped.Go(func() {
		<-sctx.Done()
		srv.Stop()
	})
	err := srv.Serve(l)
	cancel()
	stopped.Wait()
	if ctx.Err() != nil && (err == nil || errors.Is(err, grpc.ErrServerStopped)) {
		return nil
	}
	return fmt.Errorf("fake runtime: serving on %s: %w", l.Addr(), err)
}
