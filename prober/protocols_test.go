package prober_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/prober"
)

// A gRPC probe of the mode TLS is made over TLS if that is on, whoever has signed the certificate. Otherwise the mode is
// ignored.
func TestGRPCModes(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	serve := func(opts ...grpc.ServerOption) int32 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s := grpc.NewServer(opts...)
		healthpb.RegisterHealthServer(s, health.NewServer())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.Serve(l)
		}()
		t.Cleanup(func() {
			s.Stop()
			<-ended
		})
		return int32(l.Addr().(*net.TCPAddr).Port)
	}
	plain, secure := serve(), serve(grpc.Creds(credentials.NewServerTLSFromCert(&certified.TLS.Certificates[0])))
	silent := httptest.NewUnstartedServer(nil)
	silent.Listener = tls.NewListener(silent.Listener, &tls.Config{Certificates: certified.TLS.Certificates})
	silent.Config.ErrorLog = log.New(io.Discard, "", 0)
	silent.Start()
	defer silent.Close()
	http1 := int32(silent.Listener.Addr().(*net.TCPAddr).Port)
	none, mode := (*v1.GRPCProbeMode)(nil), ptr.To[v1.GRPCProbeMode]
	for name, tc := range map[string]struct {
		on      bool
		mode    *v1.GRPCProbeMode
		port    int32
		outcome prober.Outcome
		output  string
	}{
		"TLS":                     {true, mode(v1.GRPCProbeModeTLS), secure, prober.Success, "service healthy"},
		"TLS, plain server":       {true, mode(v1.GRPCProbeModeTLS), plain, prober.Failure, "error: failed to connect"},
		"TLS without HTTP/2":      {true, mode(v1.GRPCProbeModeTLS), http1, prober.Failure, "does not choose HTTP/2"},
		"plain":                   {true, mode(v1.GRPCProbeModePlaintext), plain, prober.Success, "service healthy"},
		"plain, TLS server":       {true, mode(v1.GRPCProbeModePlaintext), secure, prober.Failure, "error: "},
		"no mode":                 {true, none, plain, prober.Success, "service healthy"},
		"TLS, off":                {false, mode(v1.GRPCProbeModeTLS), plain, prober.Success, "service healthy"},
		"TLS, off, server of TLS": {false, mode(v1.GRPCProbeModeTLS), secure, prober.Failure, "error: "},
	} {
		t.Run(name, func(t *testing.T) {
			outcome, output, err := checkWith(t.Context(), t, nil, prober.Options{GRPCTLS: tc.on}, prober.Target{
				Container: &v1.Container{}, Address: "127.0.0.1", Timeout: 5 * time.Second,
				Probe: &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: tc.port, Mode: tc.mode}}},
			})
			require.NoError(t, err)
			assert.Equal(t, tc.outcome, outcome, output)
			assert.Contains(t, output, tc.output)
		})
	}
}

// An httpGet probe of the protocol HTTP2 is made in HTTP/2 with prior knowledge if that is on, and in HTTP/1.1 otherwise.
func TestHTTPProtocols(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	both := httptest.NewUnstartedServer(handler)
	both.Config.Protocols = new(http.Protocols)
	both.Config.Protocols.SetHTTP1(true)
	both.Config.Protocols.SetUnencryptedHTTP2(true)
	both.Start()
	defer both.Close()
	old := httptest.NewServer(handler)
	defer old.Close()
	h2, h1 := ptr.To(v1.HTTPProtocolHTTP2), ptr.To(v1.HTTPProtocolHTTP1)
	for name, tc := range map[string]struct {
		on       bool
		protocol *v1.HTTPProtocol
		server   *httptest.Server
		outcome  prober.Outcome
		output   string
	}{
		"HTTP2":             {true, h2, both, prober.Success, "HTTP/2.0"},
		"HTTP2, old server": {true, h2, old, prober.Failure, ""},
		"HTTP1":             {true, h1, both, prober.Success, "HTTP/1.1"},
		"no protocol":       {true, nil, both, prober.Success, "HTTP/1.1"},
		"HTTP2, off":        {false, h2, both, prober.Success, "HTTP/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			target := httpTarget(t, tc.server, "/")
			target.Probe.HTTPGet.Protocol = tc.protocol
			outcome, output, err := checkWith(t.Context(), t, nil, prober.Options{H2C: tc.on}, target)
			require.NoError(t, err)
			assert.Equal(t, tc.outcome, outcome, output)
			if tc.output != "" {
				assert.Equal(t, tc.output, output)
			}
		})
	}
}
