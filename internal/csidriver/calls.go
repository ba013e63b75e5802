package csidriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Call is a call that was made, of any of the services.
type Call struct {
	// Method is the name of the method, such as "NodeStageVolume".
	Method string
	// Request is what the CO has sent, with the secrets. It must not be changed.
	Request proto.Message
	// Done means that there is an answer, with the code.
	Done bool
	Code codes.Code
}

// VolumeID returns the ID of the volume that the call is about, or "".
func (c Call) VolumeID() string { return volumeID(c.Request) }

func volumeID(request any) string {
	if r, ok := request.(interface{ GetVolumeId() string }); ok {
		return r.GetVolumeId()
	}
	return ""
}

// Calls returns the calls that were made, in the order in which they came.
func (d *Driver) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Call(nil), d.calls...)
}

// ForgetCalls removes the calls that were made.
func (d *Driver) ForgetCalls() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = nil
}

// callsFile has the calls in a file, a line each.
type callsFile struct {
	mu sync.Mutex
	f  *os.File // nil: the calls are not kept
}

// open opens the file, and returns the calls in it.
func (c *callsFile) open(path string) (calls []Call, err error) {
	c.f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(c.f); ; {
		var call Call
		switch err := decoder.Decode(&call); err {
		case nil:
			calls = append(calls, call)
		case io.EOF:
			return calls, nil
		default:
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), c.f.Close())
		}
	}
}

func (c *callsFile) append(call Call) {
	if c.f == nil {
		return
	}
	data, err := json.Marshal(call)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		_, err = c.f.Write(append(data, '\n'))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "csidriver: a call is not kept: %v\n", err)
	}
}

// Count returns how many calls are of a method.
func Count(calls []Call, method string) (n int) {
	for _, c := range calls {
		if c.Method == method {
			n++
		}
	}
	return n
}

// intercept records a call, and applies the hooks and the faults.
func (d *Driver) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	method, request := path.Base(info.FullMethod), req.(proto.Message)
	answered := d.record(Call{Method: method, Request: proto.Clone(request)})
	response, err := d.answer(ctx, method, request, handler)
	if _, ok := response.(*csi.NodeStageVolumeResponse); ok && err == nil {
		if err = d.volumes.answered(volumeID(request)); err != nil {
			response, err = nil, status.Error(codes.Internal, err.Error())
		}
	}
	answered(status.Code(err))
	if d.opts.After != nil {
		message, _ := response.(proto.Message)
		d.opts.After(method, request, message, err)
	}
	return response, err
}

// record adds a call. The function that it returns sets the code of the answer.
func (d *Driver) record(c Call) func(codes.Code) {
	d.callsFile.append(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	at := len(d.calls)
	d.calls = append(d.calls, c)
	return func(code codes.Code) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if at < len(d.calls) && d.calls[at].Request == c.Request { // it was not forgotten
			d.calls[at].Done, d.calls[at].Code = true, code
		}
	}
}

func (d *Driver) answer(ctx context.Context, method string, request proto.Message,
	handler grpc.UnaryHandler) (any, error) {
	if d.opts.Before != nil {
		if err := d.opts.Before(method, request); err != nil {
			return nil, err
		}
	}
	f := d.fault(method, request)
	if f == nil {
		return handler(ctx, request)
	}
	if !f.Late {
		if err := d.apply(f); err != nil {
			return nil, err
		}
	}
	response, err := handler(ctx, request)
	if f.Late && err == nil {
		err = d.apply(f)
	}
	switch {
	case err != nil:
		return nil, err
	case f.Exit:
		d.end()
		<-d.stopped
		return nil, status.Error(codes.Unavailable, ErrExit.Error())
	case f.Answer != nil:
		return f.Answer, nil
	case f.Nonsense:
		return garbage{}, nil
	}
	return response, nil
}
