package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// CRIProxy stands between an agent and the runtime of a cluster. It passes all calls on but those
// that it refuses, as a runtime without them does.
type CRIProxy struct {
	// Endpoint leads an agent to the proxy.
	Endpoint string

	runtime *grpc.ClientConn

	mu      sync.Mutex
	refused []string
	calls   map[string]int
}

// NewCRIProxy starts a proxy, which ends with the test.
func (c *Cluster) NewCRIProxy(t testing.TB) *CRIProxy {
	t.Helper()
	socket := filepath.Join(c.Dir, "proxy.sock")
	p := &CRIProxy{Endpoint: "unix://" + socket, calls: map[string]int{}}
	var err error
	p.runtime, err = grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{}), grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(p.pass),
		grpc.MaxRecvMsgSize(16<<20))
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
		p.runtime.Close()
	})
	return p
}

// Refuse has the proxy answer the methods with Unimplemented from now on, and no others.
func (p *CRIProxy) Refuse(methods ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = methods
}

// Calls returns how often the method was called until now, refused calls included.
func (p *CRIProxy) Calls(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

// pass passes a call on: each is a stream of messages in both directions.
func (p *CRIProxy) pass(_ any, in grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(in)
	method := path.Base(full)
	p.mu.Lock()
	p.calls[method]++
	refused := slices.Contains(p.refused, method)
	p.mu.Unlock()
	if refused {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	ctx, cancel := context.WithCancel(in.Context())
	defer cancel() // which ends the copy to the runtime
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	out, err := p.runtime.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, full)
	if err != nil {
		return err
	}
	go func() {
		var message []byte
		for in.RecvMsg(&message) == nil {
			if out.SendMsg(message) != nil {
				return
			}
		}
		_ = out.CloseSend()
	}()
	for {
		var message []byte
		if err := out.RecvMsg(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := in.SendMsg(message); err != nil {
			return err
		}
	}
}

// bytesCodec has messages as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("a message is a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(message)}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a message is a %T", v)
	}
	*message = data.Materialize()
	return nil
}
