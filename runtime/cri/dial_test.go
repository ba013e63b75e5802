package cri_test

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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake/criserver"
)

// serve serves the runtime on a socket until stop is called, at the end of the test
// at the latest.
func serve(t *testing.T, path string, rt *fake.Runtime) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan struct{})
	go func() {
		defer close(served)
		assert.NoError(t, criserver.Serve(ctx, rt, l))
	}()
	stop = func() { cancel(); <-served }
	t.Cleanup(stop)
	return stop
}

// dial returns a client of what is served at a socket.
func dial(t *testing.T, path string, opts cri.Options) *cri.Runtime {
	t.Helper()
	rt, err := cri.Dial(t.Context(), path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	return rt
}

// socket returns a path for a socket. It is short, as those of sockets have to be.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func TestDialRefusesBadEndpoints(t *testing.T) {
	_, err := cri.Dial(t.Context(), "tcp://h:1", cri.Options{ImageEndpoint: "rel"})
	assert.ErrorContains(t, err, `"tcp://h:1": unknown scheme "tcp", want unix:///path/to.sock`)
	assert.ErrorContains(t, err, `"rel": want an absolute path`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = cri.Dial(ctx, "/x.sock", cri.Options{})
	assert.ErrorIs(t, err, context.Canceled)
}

// TestSocketComesAndGoes has a real socket, and so real time: it waits for what has
// to happen, with a bound.
func TestSocketComesAndGoes(t *testing.T) {
	path := socket(t)
	rt := dial(t, path, cri.Options{MaxMessageSize: 1 << 20})
	check := func() error { return rt.Check(t.Context()) }
	err := check()
	require.ErrorIs(t, err, runtime.ErrUnavailable)
	assert.ErrorContains(t, err, "container runtime at unix://"+path+" does not answer; is it running, is this its "+
		"CRI socket, and may this user open it? Status: dial unix "+path+": connect: no such file or directory: "+
		"container runtime unavailable")

	served := fake.New(fake.Options{Without: append(fake.ListStreams(), "ListPodSandbox", "ListContainers")})
	served.Script(fake.Target{}, fake.Behavior{Exec: func(context.Context, []string) (runtime.ExecResult, error) {
		return runtime.ExecResult{Output: make([]byte, 2<<20)}, nil
	}})
	require.NoError(t, served.Seed(fake.Pods(1, 1)...))
	for range 2 {
		stop := serve(t, path, served)
		require.Eventually(t, func() bool { return check() == nil }, time.Minute, 20*time.Millisecond)
		_, err := rt.ListPods(t.Context())
		assert.Equal(t, codes.Unimplemented, status.Code(err), "the gRPC status can be asked for")
		_, err = rt.Exec(t.Context(), served.Instances(fake.Target{})[0].ID, []string{"yes"}, 0)
		assert.ErrorContains(t, err, "larger than max")
		stop()
		require.Eventually(t, func() bool { return errors.Is(check(), runtime.ErrUnavailable) }, time.Minute,
			20*time.Millisecond)
	}
}

// The commands of probes and hooks of all containers write as much as they can at once.
func TestOutputOfCommandsIsBounded(t *testing.T) {
	path, served, output := socket(t), fake.New(fake.Options{}), make([]byte, 3<<20)
	served.Script(fake.Target{}, fake.Behavior{Exec: func(context.Context, []string) (runtime.ExecResult, error) {
		return runtime.ExecResult{Output: output}, nil
	}})
	require.NoError(t, served.Seed(fake.Pods(1, 1)...))
	serve(t, path, served)
	rt := dial(t, path, cri.Options{})
	id := served.Instances(fake.Target{})[0].ID
	res, err := rt.Exec(t.Context(), id, []string{"yes"}, 0)
	require.NoError(t, err)
	assert.Len(t, res.Output, len(output))
	output = make([]byte, 5<<20)
	_, err = rt.Exec(t.Context(), id, []string{"yes"}, 0)
	assert.ErrorContains(t, err, "bytes of the output of the command, and the limit")
}

func TestImageEndpoint(t *testing.T) {
	containers, images := fake.New(fake.Options{}), fake.New(fake.Options{})
	there, here := socket(t), socket(t)
	serve(t, there, images)
	serve(t, here, containers)
	s := newSyncer(t, dial(t, here, cri.Options{ImageEndpoint: there}), podOf("a"))
	_, err := s.sync()
	require.ErrorContains(t, err, "CreateContainerError", "only one of them has the image")
	assert.Equal(t, []string{"PullImage default/web app:1"}, images.Transcript(fake.Target{}))
	assert.Equal(t, []string{
		"RunPodSandbox default/web", "CreateContainer default/web/a: NotFound",
	}, containers.Transcript(fake.Target{}))
}
