package cri

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestWrapCall(t *testing.T) {
	for code, class := range map[codes.Code]error{
		codes.NotFound: runtime.ErrNotFound, codes.Unavailable: runtime.ErrUnavailable,
		codes.Canceled: context.Canceled, codes.DeadlineExceeded: context.DeadlineExceeded,
	} {
		err := wrapCall("Method", "pod p", status.Error(code, "words"), nil)
		assert.ErrorIs(t, err, class)
		assert.ErrorContains(t, err, "pod p: Method: words")
		assert.Equal(t, "words", reason(err))
	}
	assert.EqualError(t, wrapCall("Method", "", status.Error(codes.Unknown, "words"), nil), "Method: words")
	starting := wrapCall("Status", "", status.Error(codes.Unknown, "server is not initialized yet"), nil)
	assert.ErrorIs(t, starting, runtime.ErrUnavailable, "containerd 1.6 and 1.7 while they start")
	err := wrapCall("Method", "", status.Error(codes.Canceled, "stream terminated"), context.DeadlineExceeded)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.EqualError(t, err, "Method: context deadline exceeded")
}

func TestUnimplementedIsUnsupported(t *testing.T) {
	err := wrapCall("Method", "", status.Error(codes.Unimplemented, "unknown method Method"), nil)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.EqualError(t, err, "Method: unknown method Method")
}
