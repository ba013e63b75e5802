//go:build linux

package process

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPanicOfACall(t *testing.T) {
	var log string
	s, err := newServer(Options{Dir: "/dir", Logger: funcr.New(func(_, args string) { log += args }, funcr.Options{})})
	require.NoError(t, err)
	unary := func(handler grpc.UnaryHandler) (any, error) {
		return s.recoverUnary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/Call"}, handler)
	}
	_, err = unary(func(context.Context, any) (any, error) { panic("oops") })
	assert.Equal(t, codes.Internal, status.Code(err))
	assert.ErrorContains(t, err, "/Call: panic: oops")
	assert.Contains(t, log, "TestPanicOfACall", "the stack")

	failed := errors.New("failed")
	_, err = unary(func(context.Context, any) (any, error) { return nil, failed })
	assert.Equal(t, failed, err)
	resp, err := unary(func(context.Context, any) (any, error) { return 1, nil })
	assert.Equal(t, 1, resp)
	assert.NoError(t, err)

	err = s.recoverStream(nil, nil, &grpc.StreamServerInfo{FullMethod: "/Stream"},
		func(any, grpc.ServerStream) error { panic(failed) })
	assert.Equal(t, codes.Internal, status.Code(err))
	assert.ErrorContains(t, err, "/Stream: panic: failed")
}
