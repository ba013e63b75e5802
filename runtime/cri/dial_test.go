package cri

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestTargetOf(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:///run/containerd/containerd.sock": "unix:///run/containerd/containerd.sock",
		"/run/containerd/containerd.sock":        "unix:///run/containerd/containerd.sock",
		"unix:///run//x/../crio.sock":            "unix:///run/crio.sock",
		"":                                       "",
		"run/containerd.sock":                    "",
		"unix://relative.sock":                   "",
		"tcp://127.0.0.1:1234":                   "",
	} {
		got, err := targetOf(endpoint)
		assert.Equal(t, want, got, endpoint)
		assert.Equal(t, want == "", err != nil, endpoint)
	}
}

func TestDialRefusesBadEndpoints(t *testing.T) {
	_, err := Dial(t.Context(), "tcp://h:1", Options{ImageEndpoint: "rel"})
	assert.ErrorContains(t, err, `"tcp://h:1": unknown scheme "tcp", want unix:///path/to.sock`)
	assert.ErrorContains(t, err, `"rel": want an absolute path`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Dial(ctx, "/x.sock", Options{})
	assert.ErrorIs(t, err, context.Canceled)
}

// statusServer is a CRI service that knows only how it is.
type statusServer struct {
	criv1.UnimplementedRuntimeServiceServer
	criv1.UnimplementedImageServiceServer
}

func (statusServer) Version(context.Context, *criv1.VersionRequest) (*criv1.VersionResponse, error) {
	return &criv1.VersionResponse{RuntimeName: "fake"}, nil
}

func (statusServer) Status(context.Context, *criv1.StatusRequest) (*criv1.StatusResponse, error) {
	return &criv1.StatusResponse{Status: &criv1.RuntimeStatus{Conditions: []*criv1.RuntimeCondition{
		{Type: criv1.RuntimeReady, Status: true}, {Type: criv1.NetworkReady, Status: true},
	}}}, nil
}

func (statusServer) ExecSync(context.Context, *criv1.ExecSyncRequest) (*criv1.ExecSyncResponse, error) {
	return &criv1.ExecSyncResponse{Stdout: make([]byte, 2<<20)}, nil
}

// serve serves CRI on a socket until stop is called.
func serve(tb testing.TB, path string, rs criv1.RuntimeServiceServer, opts ...grpc.ServerOption) (stop func()) {
	tb.Helper()
	lis, err := net.Listen("unix", path)
	require.NoError(tb, err)
	srv := grpc.NewServer(opts...)
	criv1.RegisterRuntimeServiceServer(srv, rs)
	criv1.RegisterImageServiceServer(srv, statusServer{})
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(lis) }()
	return func() { srv.Stop(); <-done }
}

// shortDir returns a directory for a test, whose path is short, as those of sockets
// have to be.
func shortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "cri")
	require.NoError(tb, err)
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestSocketComesAndGoes has a real socket, and so real time: it waits for what has
// to happen, with a bound.
func TestSocketComesAndGoes(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	rt, err := Dial(t.Context(), path, Options{MaxMessageSize: 1 << 20})
	require.NoError(t, err)
	defer rt.Close()

	check := func() error { return rt.Check(t.Context()) }
	err = check()
	require.ErrorIs(t, err, runtime.ErrUnavailable)
	assert.ErrorContains(t, err, "container runtime at unix://"+path+" does not answer; is it running, is this its CRI socket, and may this user open it?")

	for range 2 {
		stop := serve(t, path, statusServer{})
		require.Eventually(t, func() bool { return check() == nil }, 10*time.Second, 20*time.Millisecond)
		_, err := rt.ListPods(t.Context())
		assert.Equal(t, codes.Unimplemented, status.Code(err), "the gRPC status can be asked for")
		_, err = rt.Exec(t.Context(), runtime.ContainerID{ID: "c"}, []string{"yes"}, 0)
		assert.ErrorContains(t, err, "larger than max")
		stop()
		require.Eventually(t, func() bool { return errors.Is(check(), runtime.ErrUnavailable) }, 10*time.Second, 20*time.Millisecond)
	}
}

func TestImageEndpoint(t *testing.T) {
	rt, err := Dial(t.Context(), "/a.sock", Options{ImageEndpoint: "/b.sock"})
	require.NoError(t, err)
	assert.Len(t, rt.closers, 2)
	require.NoError(t, rt.Close())
}
