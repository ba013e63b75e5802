package cri

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
)

// fetch gets a list, by stream if it is long and the runtime has the streaming list
// calls (KEP-5825), else in one reply, whose size has a limit.
//
// Where both exist there is no choice to make: a stream costs what one reply costs
// (BenchmarkLists: 5000 containers over a socket take the same time in parts of 5000,
// as containerd sends them, and of 200, and 1.3 times as long one by one, as no known
// runtime does), and less memory at a time.
//
// That the runtime has no such calls is remembered while its lists come in. When one
// fails, because the runtime was restarted or a list has outgrown its limit, the next
// list asks again, at the cost of two calls.
func fetch[T any](r *Runtime, long bool, stream, once func() ([]T, error)) ([]T, error) {
	if long && !r.unstreamed.Load() {
		list, err := stream()
		if !errors.Is(err, errors.ErrUnsupported) {
			return list, err
		}
		r.unstreamed.Store(true)
	}
	list, err := once()
	if err != nil && long {
		r.unstreamed.Store(false)
	}
	return list, err
}

// streamed makes one call that streams a list, under the call timeout, and returns
// the list when it is complete. Part of a list is an error.
func streamed[Q, P, T any](
	ctx context.Context, r *Runtime, name string,
	method func(context.Context, Q, ...grpc.CallOption) (grpc.ServerStreamingClient[P], error), req Q,
	items func(*P) []T,
) (list []T, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.CallTimeout)
	defer cancel()
	began := time.Now()
	defer func() { r.opts.Metrics.Called(Call{Method: name, Took: time.Since(began), Err: err}) }()
	stream, err := method(ctx, req)
	if err != nil {
		return nil, wrapCall(name, "", err, ctx.Err())
	}
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, wrapCall(name, "", err, ctx.Err())
		}
		list = append(list, items(part)...)
	}
}
