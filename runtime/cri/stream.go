package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
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
	if err == nil && len(list) > maxListItems {
		list, err = nil, fmt.Errorf("%w: more than %d items", errTooLong, maxListItems)
	}
	if err != nil && long {
		r.unstreamed.Store(false)
	}
	return list, err
}

// Limits for a list: many times what a node has. The bytes are for a list that is streamed,
// and do not include the first part.
const (
	maxListItems = 100_000
	maxListBytes = 128 << 20
)

// errTooLong means that the runtime lists more than a node can have.
var errTooLong = errors.New("the list of the runtime is too long")

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
	defer func() { r.opts.Metrics.Called(Call{Method: name, Took: time.Since(began), Err: err}) }()
	stream, err := method(ctx, req)
	if err != nil {
		return nil, wrapCall(name, "", err, ctx.Err())
	}
	for bytes, first := 0, true; ; first = false {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, wrapCall(name, "", err, ctx.Err())
		}
		if m, ok := any(part).(proto.Message); ok && !first { // which is often the only one
			bytes += proto.Size(m)
		}
		more := items(part)
		if bytes > maxListBytes || len(list)+len(more) > maxListItems {
			return nil, fmt.Errorf("%s: %w: more than %d items or %d bytes", name, errTooLong, maxListItems, maxListBytes)
		}
		list = append(list, more...)
	}
}
