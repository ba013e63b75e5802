package grpcprobe_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
	"github.com/kubeletkit/kubeletkit/prober/grpcprobe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is longer than any answer here takes.
const timeout = 30 * time.Second

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// serveGRPC runs a server of grpc-go and returns its address.
func serveGRPC(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	l := listen(t)
	s := grpc.NewServer()
	register(s)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-ended
	})
	return l.Addr().String()
}

// checkFunc is a health service.
type checkFunc func(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error)

func (f checkFunc) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return f(ctx, r)
}

func (checkFunc) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	return nil, status.Error(codes.Unimplemented, "not here")
}

func (checkFunc) Watch(*healthpb.HealthCheckRequest, grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	return status.Error(codes.Unimplemented, "not here")
}

func TestHealthServer(t *testing.T) {
	states := health.NewServer()
	states.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	states.SetServingStatus("db", healthpb.HealthCheckResponse_NOT_SERVING)
	states.SetServingStatus("odd", 17)
	good := serveGRPC(t, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, states) })
	bare := serveGRPC(t, func(*grpc.Server) {})
	failing := serveGRPC(t, func(s *grpc.Server) {
		healthpb.RegisterHealthServer(s,
			checkFunc(func(_ context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
				switch r.Service {
				case "late":
					return nil, status.Error(codes.DeadlineExceeded, "")
				case "code":
					return nil, status.Error(99, "new")
				default:
					return nil, status.Error(codes.Unavailable, "100% down: ä\n")
				}
			}))
	})
	closed := listen(t)
	require.NoError(t, closed.Close())

	for _, tc := range []struct {
		name, address, service string
		healthy                bool
		message                string
	}{
		{"serving", good, "", true, "service healthy"},
		{"not serving", good, "db", false, `service unhealthy (responded with "NOT_SERVING")`},
		{"a status without a name", good, "odd", false, `service unhealthy (responded with "17")`},
		{"unknown service", good, "none", false, "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
		{"no health service", bare, "", false, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health"},
		{"an error", failing, "", false, "error: health rpc probe failed: rpc error: code = Unavailable desc = 100% down: ä\n"},
		{"an unknown code", failing, "code", false, "error: health rpc probe failed: rpc error: code = Code(99) desc = new"},
		{"the server's own deadline", failing, "late", false, "timeout: health rpc did not complete within 30s"},
		{"nobody listens", closed.Addr().String(), "", false,
			fmt.Sprintf(`error: failed to connect service at %[1]q: dial tcp %[1]s: connect: connection refused`,
				closed.Addr())},
		{"no address", "nonsense", "", false, `error: failed to connect service at "nonsense": address nonsense: missing port in address`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			healthy, message := new(grpcprobe.Client).Probe(t.Context(), tc.address, tc.service, timeout)
			assert.Equal(t, tc.healthy, healthy)
			assert.Equal(t, tc.message, message)
		})
	}
}

func TestRequest(t *testing.T) {
	type call struct {
		service string
		header  metadata.MD
		left    time.Duration
	}
	calls := make(chan call, 1)
	address := serveGRPC(t, func(s *grpc.Server) {
		healthpb.RegisterHealthServer(s,
			checkFunc(func(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
				md, _ := metadata.FromIncomingContext(ctx)
				deadline, _ := ctx.Deadline()
				calls <- call{r.Service, md, time.Until(deadline)}
				return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
			}))
	})
	dials := 0
	client := &grpcprobe.Client{UserAgent: "kube-probe/test", Dial: func(ctx context.Context, network,
		address string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	for _, within := range []time.Duration{timeout, 100 * 24 * time.Hour} { // the second does not fit as milliseconds
		healthy, message := client.Probe(t.Context(), address, "a service: ä", within)
		require.True(t, healthy, message)
		got := <-calls
		assert.Equal(t, "a service: ä", got.service)
		assert.Equal(t, []string{"kube-probe/test"}, got.header.Get("user-agent"))
		assert.Equal(t, []string{"application/grpc"}, got.header.Get("content-type"))
		assert.LessOrEqual(t, got.left, within+time.Second)
		assert.Greater(t, got.left, within-timeout)
	}
	assert.Equal(t, 2, dials, "each on a connection of its own")
}

// dialPatiently connects however long that takes, so that a timeout is that of the call.
func dialPatiently(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(context.WithoutCancel(ctx), network, address)
}

func TestTimeout(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	address := serveGRPC(t, func(s *grpc.Server) {
		healthpb.RegisterHealthServer(s,
			checkFunc(func(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}))
	})
	silent := listen(t) // accepts, since the kernel does, and never answers
	client := &grpcprobe.Client{Dial: dialPatiently}
	for _, address := range []string{address, silent.Addr().String()} {
		healthy, message := client.Probe(t.Context(), address, "", 50*time.Millisecond)
		assert.False(t, healthy)
		assert.Equal(t, "timeout: health rpc did not complete within 50ms", message)
	}
	client.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	healthy, message := client.Probe(t.Context(), "192.0.2.1:9", "", 50*time.Millisecond)
	assert.False(t, healthy)
	assert.Equal(t, `timeout: failed to connect service "192.0.2.1:9" within 50ms: context deadline exceeded`, message)
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	address := serveGRPC(t, func(s *grpc.Server) {
		healthpb.RegisterHealthServer(s,
			checkFunc(func(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
				cancel()
				<-ctx.Done()
				return nil, ctx.Err()
			}))
	})
	healthy, message := new(grpcprobe.Client).Probe(ctx, address, "", time.Hour)
	assert.False(t, healthy)
	assert.NotContains(t, message, "within")
}

// serveHTTP2 runs a server of unencrypted HTTP/2 and returns its address.
func serveHTTP2(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	l := listen(t)
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return l.Addr().String()
}

// answer is a response by hand.
type answer struct {
	code    int
	header  map[string]string
	body    string
	trailer map[string]string
	abort   bool
}

func (a answer) serve(w http.ResponseWriter, _ *http.Request) {
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	if a.code != 0 {
		w.WriteHeader(a.code)
	}
	_, _ = io.WriteString(w, a.body)
	if a.abort {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	for k, v := range a.trailer {
		w.Header().Set(http.TrailerPrefix+k, v)
	}
}

func TestMalformedAnswers(t *testing.T) {
	const rpc = "error: health rpc probe failed: rpc error: code = "
	const serving = "\x00\x00\x00\x00\x02\x08\x01"
	grpcType := map[string]string{"Content-Type": "application/grpc"}
	ok := map[string]string{"Grpc-Status": "0"}
	with := func(key, value string) map[string]string {
		return map[string]string{"Content-Type": "application/grpc", key: value}
	}
	for _, tc := range []struct {
		name    string
		answer  answer
		healthy bool
		message string
	}{
		{name: "as it should be", answer: answer{header: grpcType, body: serving, trailer: ok}, healthy: true, message: "service healthy"},
		{name: "with a coding", answer: answer{header: map[string]string{"Content-Type": "application/grpc+proto"}, body: serving, trailer: ok}, healthy: true, message: "service healthy"},
		{name: "fields to skip", answer: answer{header: grpcType, body: "\x00\x00\x00\x00\x09\x12\x03abc\x08\x02\x08\x01", trailer: ok}, healthy: true, message: "service healthy"},
		{name: "status in the header", answer: answer{header: with("Grpc-Status", "0"), body: serving}, healthy: true, message: "service healthy"},
		{name: "the default status", answer: answer{header: grpcType, body: "\x00\x00\x00\x00\x00", trailer: ok}, message: `service unhealthy (responded with "UNKNOWN")`},
		{name: "SERVICE_UNKNOWN", answer: answer{header: grpcType, body: "\x00\x00\x00\x00\x02\x08\x03", trailer: ok}, message: `service unhealthy (responded with "SERVICE_UNKNOWN")`},
		{name: "a negative status", answer: answer{header: grpcType, body: "\x00\x00\x00\x00\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", trailer: ok}, message: `service unhealthy (responded with "-1")`},

		{name: "trailers only", answer: answer{header: with("Grpc-Status", "5")}, message: rpc + "NotFound desc = "},
		{name: "trailers only, OK", answer: answer{header: with("Grpc-Status", "0")}, message: rpc + "Internal desc = the server sent no response message"},
		{name: "unimplemented", answer: answer{header: map[string]string{"Content-Type": "application/grpc", "Grpc-Status": "12", "Grpc-Message": "no%20such"}}, message: "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): no such"},
		{name: "a message that is not encoded", answer: answer{header: map[string]string{"Content-Type": "application/grpc", "Grpc-Status": "2", "Grpc-Message": "100%"}}, message: rpc + "Unknown desc = 100%"},
		{name: "an error after the message", answer: answer{header: grpcType, body: serving, trailer: map[string]string{"Grpc-Status": "14"}}, message: rpc + "Unavailable desc = "},
		{name: "no trailers", answer: answer{header: grpcType, body: serving}, message: rpc + "Internal desc = server closed the stream without sending trailers"},
		{name: "no number", answer: answer{header: with("Grpc-Status", "OK")}, message: rpc + `Internal desc = malformed grpc-status "OK"`},

		{name: "nothing", answer: answer{header: grpcType, trailer: ok}, message: rpc + "Internal desc = the server sent no response message"},
		{name: "half a prefix", answer: answer{header: grpcType, body: "\x00\x00", trailer: ok}, message: rpc + "Internal desc = the response ends in the prefix of its message"},
		{name: "half a message", answer: answer{header: grpcType, body: "\x00\x00\x00\x00\x02\x08", trailer: ok}, message: rpc + "Internal desc = the response has 1 bytes after the prefix of a message of 2"},
		{name: "two messages", answer: answer{header: grpcType, body: serving + serving, trailer: ok}, message: rpc + "Internal desc = the response has 9 bytes after the prefix of a message of 2"},
		{name: "compressed", answer: answer{header: grpcType, body: "\x01\x00\x00\x00\x02\x08\x01", trailer: ok}, message: rpc + "Internal desc = the response is compressed though the request does not allow it"},
		{name: "no field", answer: answer{header: grpcType, body: "\x00\x00\x00\x00\x01\x07", trailer: ok}, message: rpc + "Internal desc = the response is not a HealthCheckResponse: *"},
		{name: "half a field", answer: answer{header: grpcType, body: "\x00\x00\x00\x00\x01\x08", trailer: ok}, message: rpc + "Internal desc = the response is not a HealthCheckResponse: unexpected EOF"},
		{name: "too long", answer: answer{header: grpcType, body: strings.Repeat("x", 100<<10), trailer: ok}, message: rpc + "ResourceExhausted desc = the response is longer than 65536 bytes"},
		{name: "reset", answer: answer{header: grpcType, body: serving, abort: true}, message: rpc + "Unavailable desc = *"},

		{name: "plain HTTP", answer: answer{header: map[string]string{"Content-Type": "text/plain"}, body: "hello"}, message: rpc + `Unknown desc = unexpected HTTP response: status 200 (OK), content-type "text/plain"`},
		{name: "like gRPC", answer: answer{header: map[string]string{"Content-Type": "application/grpc-web"}, body: serving, trailer: ok}, message: rpc + "Unknown desc = *"},
		{name: "HTTP 404", answer: answer{code: 404, header: map[string]string{"Content-Type": "text/html"}}, message: "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): *"},
		{name: "HTTP 503", answer: answer{code: 503, header: grpcType}, message: rpc + `Unavailable desc = unexpected HTTP response: status 503 (Service Unavailable), content-type "application/grpc"`},
		{name: "HTTP 400", answer: answer{code: 400}, message: rpc + "Internal desc = *"},
		{name: "HTTP 401", answer: answer{code: 401}, message: rpc + "Unauthenticated desc = *"},
		{name: "HTTP 403", answer: answer{code: 403}, message: rpc + "PermissionDenied desc = *"},
		{name: "redirect", answer: answer{code: 302, header: map[string]string{"Location": "/"}}, message: rpc + "Unknown desc = *"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			address := serveHTTP2(t, tc.answer.serve)
			healthy, message := new(grpcprobe.Client).Probe(t.Context(), address, "", timeout)
			assert.Equal(t, tc.healthy, healthy)
			if start, open := strings.CutSuffix(tc.message, "*"); open {
				assert.True(t, strings.HasPrefix(message, start), message)
			} else {
				assert.Equal(t, tc.message, message)
			}
		})
	}
}

func TestOtherProtocols(t *testing.T) {
	for name, answer := range map[string]string{
		"HTTP/1.1":    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"another":     "220 mail.example.com ESMTP\r\n",
		"hangs up":    "",
		"zero frames": strings.Repeat("\x00", 100),
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, answer)
				_ = conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
			healthy, message := new(grpcprobe.Client).Probe(t.Context(), l.Addr().String(), "", timeout)
			assert.False(t, healthy)
			assert.True(t, strings.HasPrefix(message, "error: "), message)
			<-ended
		})
	}
}

// A server that answers and does not read does not delay the probe beyond its timeout: to
// read from it, HTTP/2 has to write to it.
func TestServerThatDoesNotRead(t *testing.T) {
	address := serveHTTP2(t, answer{header: map[string]string{"Content-Type": "application/grpc"},
		body: strings.Repeat("x", 100<<10)}.serve)
	client := &grpcprobe.Client{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialPatiently(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return nodenet.Stuck(conn, 1<<10), nil
	}}
	for range 5 { // whether the write is one that net/http waits for is a matter of scheduling
		healthy, message := client.Probe(t.Context(), address, "", 100*time.Millisecond)
		assert.False(t, healthy)
		assert.Equal(t, "timeout: health rpc did not complete within 100ms", message)
	}
}

// FuzzAnswer has any body, framed or not, be answered with a message.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{"\x00\x00\x00\x00\x02\x08\x01", "\x01", "\x00\x00\x00\x00\x00"} {
		f.Add(s, "0")
	}
	body := make(chan answer, 1) // one, for the one request
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f, err)
	s := &http.Server{Protocols: new(http.Protocols),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (<-body).serve(w, r) })}
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	f.Cleanup(func() { _ = s.Close() })
	f.Fuzz(func(t *testing.T, b, code string) {
		if strings.ContainsFunc(code, unicode.IsControl) {
			t.Skip("the server of net/http does not end a response with such a trailer")
		}
		body <- answer{header: map[string]string{"Content-Type": "application/grpc"}, body: b,
			trailer: map[string]string{"Grpc-Status": code}}
		healthy, message := new(grpcprobe.Client).Probe(t.Context(), l.Addr().String(), "", timeout)
		if message == "" || healthy != (message == "service healthy") {
			t.Fatalf("%t: %q", healthy, message)
		}
	})
}

func ExampleClient_Probe() {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(l) }()
	defer server.Stop()

	client := &grpcprobe.Client{UserAgent: "kube-probe/1.37"}
	healthy, message := client.Probe(context.Background(), l.Addr().String(), "", 10*time.Second)
	fmt.Println(healthy, message)
	// Output: true service healthy
}
