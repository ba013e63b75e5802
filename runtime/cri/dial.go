package cri

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Dial returns a Runtime over the endpoint, "unix:///run/containerd/containerd.sock"
// or the path alone. It does not wait for the socket, which may appear later, or
// disappear and come back: connections are made when calls need them, and
// [Runtime.Check] reports whether the runtime answers. Dial fails if ctx has ended,
// and makes no other use of it.
//
// The error names every malformed endpoint. [Runtime.Close] releases the connections.
func Dial(ctx context.Context, endpoint string, opts Options) (*Runtime, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("container runtime endpoint %q: %w", endpoint, err)
	}
	opts.setDefaults()
	target, err := targetOf(endpoint)
	imageTarget := target
	var imageErr error
	if opts.ImageEndpoint != "" {
		imageTarget, imageErr = targetOf(opts.ImageEndpoint)
	}
	if err := errors.Join(err, imageErr); err != nil {
		return nil, err
	}

	conn, err := connect(target, &opts)
	if err != nil {
		return nil, err
	}
	imageConn := conn
	if imageTarget != target {
		if imageConn, err = connect(imageTarget, &opts); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	r := New(criv1.NewRuntimeServiceClient(conn), criv1.NewImageServiceClient(imageConn), opts)
	r.endpoint = target
	r.closers = append(r.closers, conn)
	if imageConn != conn {
		r.closers = append(r.closers, imageConn)
	}
	return r, nil
}

// targetOf returns the endpoint as a gRPC target "unix:///absolute/path".
func targetOf(endpoint string) (string, error) {
	path := endpoint
	if scheme, rest, ok := strings.Cut(endpoint, "://"); ok {
		if scheme != "unix" {
			return "", fmt.Errorf("container runtime endpoint %q: unknown scheme %q, want unix:///path/to.sock",
				endpoint, scheme)
		}
		path = rest
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("container runtime endpoint %q: want an absolute path, as in "+
			"unix:///run/containerd/containerd.sock", endpoint)
	}
	return "unix://" + filepath.Clean(path), nil
}

// connect returns a lazy connection to a target.
func connect(target string, opts *Options) (*grpc.ClientConn, error) {
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(opts.MaxMessageSize), grpc.ForceCodecV2(newCodec())),
		// Attempts on a local socket are cheap. A runtime that has come back is found within
		// a second; with gRPC's defaults it could take two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	if opts.CallStats != nil {
		dial = append(dial, grpc.WithStatsHandler(opts.CallStats))
	}
	conn, err := grpc.NewClient(target, dial...)
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint %q: %w", target, err)
	}
	return conn, nil
}
