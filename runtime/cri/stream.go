package cri

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
)

// fetch gets a list, as a stream if it is long and the runtime has the streaming list
// calls (KEP-5825), else in one reply, whose size is limited.
//
// A stream costs as much time as one reply, and less memory at once (BenchmarkLists: 5000
// containers over a socket take the same time in one reply, in parts of 5000, as in
// containerd, and in parts of 200; they take 1.3 times as long one by one, which no known
// runtime does).
//
// When the runtime has no such calls, fetch does not try them again until a list fails,
// because the runtime was restarted or the list exceeds its limit.
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

// streamed makes one call that streams a list, under the call timeout, and returns the
// complete list or an error. Each part is bounded by [Options].MaxMessageSize.
func streamed[Q, P, T any](
	ctx context.Context, r *Runtime, name string,
	method func(context.Context, Q, ...grpc.CallOption) (grpc.ServerStreamingClient[P], error), req Q,
	items func(*P) []T,
) (list []T, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.CallTimeout)
	defer cancel()
	began := time.Now()
	defer func() { r.called(name, began, err) }()
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
