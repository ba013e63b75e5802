package process

import (
	"context"
	"errors"

	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// Runtime is a [Server] with a client, as the runtime of an agent. [Start] makes one.
type Runtime struct {
	*cri.Runtime
	server *Server
}

// Start opens a server, as [Open] does, and connects to it. The runtime can be used until [Runtime.Close]; ctx is for
// Start only. Containers keep running after Close.
//
// The errors are those of Open and of [cri.Dial].
func Start(ctx context.Context, opts Options) (*Runtime, error) {
	server, err := Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	client := opts.CRI
	if client.Logger.GetSink() == nil {
		client.Logger = opts.Logger
	}
	rt, err := cri.Dial(ctx, server.Endpoint(), client)
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &Runtime{rt, server}, nil
}

// Server returns the server of the runtime. If it fails, all calls of the runtime fail; see [Server.Done].
func (r *Runtime) Server() *Server { return r.server }

// Close ends the client and the server, see [Server.Close].
func (r *Runtime) Close() error { return errors.Join(r.Runtime.Close(), r.server.Close()) }
