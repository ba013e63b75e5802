package cri_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// streamer is a runtime service that answers the calls for streams with a URL or an error.
type streamer struct {
	criv1.RuntimeServiceClient
	url     string
	err     error
	exec    *criv1.ExecRequest
	attach  *criv1.AttachRequest
	forward *criv1.PortForwardRequest
}

func (s *streamer) Exec(_ context.Context, req *criv1.ExecRequest, _ ...grpc.CallOption) (*criv1.ExecResponse, error) {
	s.exec = req
	return &criv1.ExecResponse{Url: s.url}, s.err
}

func (s *streamer) Attach(_ context.Context, req *criv1.AttachRequest,
	_ ...grpc.CallOption) (*criv1.AttachResponse, error) {
	s.attach = req
	return &criv1.AttachResponse{Url: s.url}, s.err
}

func (s *streamer) PortForward(_ context.Context, req *criv1.PortForwardRequest,
	_ ...grpc.CallOption) (*criv1.PortForwardResponse, error) {
	s.forward = req
	return &criv1.PortForwardResponse{Url: s.url}, s.err
}

func TestStreamURLs(t *testing.T) {
	rs, is := newService(t).Clients()
	service := &streamer{RuntimeServiceClient: rs, url: "http://127.0.0.1:1234/exec/token"}
	rt := cri.New(service, is, cri.Options{})
	id := runtime.ContainerID{Type: "containerd", ID: "c1"}

	u, err := rt.ExecURL(t.Context(), id, []string{"sh", "-c", "true"},
		runtime.StreamOptions{Stdin: true, Stdout: true, TTY: true})
	require.NoError(t, err)
	assert.Equal(t, service.url, u.String())
	assert.Equal(t, `container_id:"c1" cmd:"sh" cmd:"-c" cmd:"true" tty:true stdin:true stdout:true`,
		compact(service.exec.String()))
	_, err = rt.AttachURL(t.Context(), id, runtime.StreamOptions{Stdout: true, Stderr: true})
	require.NoError(t, err)
	assert.Equal(t, `container_id:"c1" stdout:true stderr:true`, compact(service.attach.String()))
	_, err = rt.PortForwardURL(t.Context(), "s1", []int32{80, 81})
	require.NoError(t, err)
	assert.Equal(t, "s1", service.forward.GetPodSandboxId())
	assert.Equal(t, []int32{80, 81}, service.forward.GetPort())

	// The URL is a secret and in no error.
	for _, url := range []string{"", "/exec/secret", "ftp://host/secret", "http://host:port/secret", "http:///secret"} {
		service.url = url
		_, err = rt.ExecURL(t.Context(), id, nil, runtime.StreamOptions{})
		require.ErrorContains(t, err, "container containerd://c1: Exec: the runtime returned a URL that cannot be used",
			url)
		require.NotContains(t, err.Error(), "secret")
	}
	service.err = status.Error(codes.NotFound, "no such container")
	_, err = rt.ExecURL(t.Context(), id, nil, runtime.StreamOptions{})
	require.ErrorIs(t, err, runtime.ErrNotFound)
	_, err = rt.AttachURL(t.Context(), id, runtime.StreamOptions{})
	require.ErrorIs(t, err, runtime.ErrNotFound)
	_, err = rt.PortForwardURL(t.Context(), "s1", nil)
	require.ErrorIs(t, err, runtime.ErrNotFound)
}

// compact removes the double spaces that protobuf sometimes writes.
func compact(text string) string { return strings.Join(strings.Fields(text), " ") }
