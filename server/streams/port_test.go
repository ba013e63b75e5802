package streams_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/kubeletkit/kubeletkit/cluster/credentials"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/auth"
	"github.com/kubeletkit/kubeletkit/server/streams"
)

// together allows everybody everything when all are there.
type together struct {
	connecting chan struct{} // has a value for each client that is not authenticated yet
	missing    atomic.Int64
	complete   chan struct{} // closed when none is missing
}

func (g *together) Authenticate(*http.Request) (*authenticationv1.UserInfo, error) {
	<-g.connecting
	return &authenticationv1.UserInfo{Username: "kubectl"}, nil
}

func (g *together) Authorize(ctx context.Context, _ *authenticationv1.UserInfo,
	_ *authorizationv1.ResourceAttributes) (bool, error) {
	if g.missing.Add(-1) == 0 {
		close(g.complete)
	}
	select {
	case <-g.complete:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// 120 sessions that begin at once through the port for the API server are all served: the port once had
// 100 connections to clients that were not authorized yet. Not all
// handshakes are under way at once: on a slow machine they would take longer than each may.
func TestManySessionsThroughThePort(t *testing.T) {
	const many = 120
	everyWay(t, func(t *testing.T, local, websocket bool) {
		w := newWorld(t, local, streams.Options{SetupTimeout: slowly})
		g := &together{connecting: make(chan struct{}, 16), complete: make(chan struct{})}
		g.missing.Store(many)
		guard, err := auth.New(auth.Options{NodeName: "node", Authenticators: []auth.Authenticator{g}, Authorizer: g})
		require.NoError(t, err)
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		serving, err := credentials.LoadServing("node", credentials.ServingOptions{CertDir: t.TempDir()})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- server.ServeTLS(ctx, l, guard.Protect(server.Trusted(w.h)),
				server.TLSOptions{GetCertificate: serving.GetCertificate, MinVersion: tls.VersionTLS13})
		}()
		u := &url.URL{Scheme: "https", Host: l.Addr().String(), Path: "/exec/default/web/main",
			RawQuery: url.Values{"command": {"cat"}, "output": {"1"}, "input": {"1"}}.Encode()}
		config := &rest.Config{Host: u.Host, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
		var clients sync.WaitGroup
		for i := range many {
			var e remotecommand.Executor
			if websocket {
				e, err = remotecommand.NewWebSocketExecutor(config, "GET", u.String())
			} else {
				e, err = remotecommand.NewSPDYExecutor(config, "POST", u)
			}
			require.NoError(t, err)
			clients.Go(func() {
				var out bytes.Buffer
				text := fmt.Sprintf("session %d", i)
				select {
				case g.connecting <- struct{}{}:
				case <-ctx.Done():
					return
				}
				if !assert.NoError(t,
					e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(text),
						Stdout: &out})) {
					cancel() // the others would wait for it
				}
				assert.Equal(t, text, out.String())
			})
		}
		clients.Wait()
		cancel()
		require.NoError(t, <-done)
	})
}
