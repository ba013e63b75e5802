package cri_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// execClient answers ExecSync.
type execClient struct {
	criv1.RuntimeServiceClient
	exec func(ctx context.Context, req *criv1.ExecSyncRequest) (*criv1.ExecSyncResponse, error)
}

func (c execClient) ExecSync(ctx context.Context, req *criv1.ExecSyncRequest,
	_ ...grpc.CallOption) (*criv1.ExecSyncResponse, error) {
	return c.exec(ctx, req)
}

func TestExec(t *testing.T) {
	id := runtime.ContainerID{Type: "fake", ID: "c1"}
	t.Run("exit code", func(t *testing.T) {
		client := execClient{exec: func(context.Context, *criv1.ExecSyncRequest) (*criv1.ExecSyncResponse, error) {
			return &criv1.ExecSyncResponse{Stdout: []byte("out"), Stderr: []byte("err"), ExitCode: 2}, nil
		}}
		res, err := cri.New(client, nil, cri.Options{}).Exec(t.Context(), id, []string{"x"}, 0)
		require.NoError(t, err)
		assert.Equal(t, runtime.ExecResult{Output: []byte("outerr"), ExitCode: 2}, res)
	})
	t.Run("no such container", func(t *testing.T) {
		client := execClient{exec: func(context.Context, *criv1.ExecSyncRequest) (*criv1.ExecSyncResponse, error) {
			return nil, status.Error(codes.NotFound, `container "c1" not found`)
		}}
		_, err := cri.New(client, nil, cri.Options{}).Exec(t.Context(), id, []string{"x"}, 0)
		assert.ErrorIs(t, err, runtime.ErrNotFound)
		assert.EqualError(t, err, `command ["x"]: container fake://c1: ExecSync: container "c1" not found`)
	})
	t.Run("timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var asked int64
			client := execClient{exec: func(ctx context.Context, req *criv1.ExecSyncRequest) (*criv1.ExecSyncResponse,
				error) {
				asked = req.Timeout
				<-ctx.Done()
				return nil, status.Error(codes.DeadlineExceeded, "timeout exceeded")
			}}
			began := time.Now()
			_, err := cri.New(client, nil, cri.Options{CallTimeout: time.Second}).Exec(t.Context(), id, []string{"x"},
				1500*time.Millisecond)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, 1500*time.Millisecond, time.Since(began))
			assert.Equal(t, int64(2), asked, "rounded up")
		})
	})
}
