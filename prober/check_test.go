package prober

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// execFunc is an Execer.
type execFunc func(ctx context.Context, id runtime.ContainerID, cmd []string, timeout time.Duration) (runtime.ExecResult, error)

func (f execFunc) Exec(ctx context.Context, id runtime.ContainerID, cmd []string, timeout time.Duration) (runtime.ExecResult, error) {
	return f(ctx, id, cmd, timeout)
}

func TestCheckExec(t *testing.T) {
	broken := errors.New("no connection")
	for _, tc := range []struct {
		name    string
		result  runtime.ExecResult
		err     error
		success bool
		output  string
		wantErr error
		calls   int
	}{
		{"succeeds", runtime.ExecResult{Output: []byte("fine")}, nil, true, "fine", nil, 1},
		{"fails", runtime.ExecResult{Output: []byte("no"), ExitCode: 3}, nil, false, "no", nil, 1},
		{"times out", runtime.ExecResult{}, fmt.Errorf("exec: %w", context.DeadlineExceeded), false, "command timed out after 1s", nil, 1},
		{"cannot be run", runtime.ExecResult{}, broken, false, "", broken, 3},
		{"says too much", runtime.ExecResult{Output: []byte(strings.Repeat("x", maxOutput+1))}, nil, true, strings.Repeat("x", maxOutput), nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := 0
			c := newChecker(execFunc(func(_ context.Context, id runtime.ContainerID, cmd []string, timeout time.Duration) (runtime.ExecResult, error) {
				calls++
				assert.Equal(t, "fake://1", id.String())
				assert.Equal(t, []string{"check", "one"}, cmd)
				assert.Equal(t, time.Second, timeout)
				return tc.result, tc.err
			}), "")
			success, output, err := c.check(t.Context(), target{
				container: &v1.Container{Env: []v1.EnvVar{{Name: "A", Value: "one"}}},
				probe:     &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check", "$(A)"}}}},
				id:        runtime.ContainerID{Type: "fake", ID: "1"}, timeout: time.Second,
			})
			assert.Equal(t, tc.success, success)
			assert.Equal(t, tc.output, output)
			assert.ErrorIs(t, err, tc.wantErr)
			assert.Equal(t, tc.calls, calls)
		})
	}
}

func httpTarget(t *testing.T, server *httptest.Server, path string, headers ...v1.HTTPHeader) target {
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	return target{
		container: &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}},
		probe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
			Scheme: v1.URIScheme(strings.ToUpper(u.Scheme)), Path: path, Port: intstr.FromString("web"), HTTPHeaders: headers,
		}}},
		host:    u.Hostname(),
		timeout: 5 * time.Second,
	}
}

func TestCheckHTTP(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/status/", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/status/"))
		w.WriteHeader(code)
		fmt.Fprint(w, "secret")
	})
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("u"), http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/seen", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s|%s|%s|%s|%s|%s", r.Host, r.UserAgent(), r.Header.Get("Accept"), r.Header.Get("Accept-Encoding"), r.Header.Get("X-A"), r.URL.RawQuery)
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("x", 2*maxOutput)) })
	server := httptest.NewServer(mux)
	defer server.Close()
	secure := httptest.NewTLSServer(mux)
	defer secure.Close()
	secure.Config.ErrorLog = nil

	for _, tc := range []struct {
		path    string
		headers []v1.HTTPHeader
		success bool
		output  string // "*": not looked at
	}{
		{path: "/status/200", success: true, output: "secret"},
		{path: "status/204", success: true},
		{path: "/status/399", success: true, output: "secret"},
		{path: "/status/400", output: "HTTP probe failed with statuscode: 400"},
		{path: "/status/503", output: "HTTP probe failed with statuscode: 503"},
		{path: "/to?u=/status/200", success: true, output: "secret"},
		{path: "/to?u=/status/500", output: "HTTP probe failed with statuscode: 500"},
		{path: "/to?u=http://other.invalid/", success: true, output: "*"},
		{path: "/loop", output: "*"},
		{path: "/long", success: true, output: strings.Repeat("x", maxOutput)},
		{path: "/seen?q=1", success: true, output: "HOST|kube-probe/test|*/*|||q=1"},
		{path: "/seen", success: true, output: "pod.example|mine|||yes|", headers: []v1.HTTPHeader{
			{Name: "Host", Value: "pod.example"}, {Name: "user-agent", Value: "mine"}, {Name: "Accept"}, {Name: "X-A", Value: "yes"},
		}},
	} {
		for _, s := range []*httptest.Server{server, secure} {
			tgt := httpTarget(t, s, tc.path, tc.headers...)
			t.Run(string(tgt.probe.HTTPGet.Scheme)+" "+tc.path, func(t *testing.T) {
				c := newChecker(nil, "kube-probe/test")
				success, output, err := c.check(t.Context(), tgt)
				require.NoError(t, err)
				assert.Equal(t, tc.success, success)
				if tc.output != "*" {
					assert.Equal(t, strings.Replace(tc.output, "HOST", s.Listener.Addr().String(), 1), output)
				}
			})
		}
	}
}

func TestCheckHTTPTimeoutIsAFailure(t *testing.T) {
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer server.Close()
	defer close(stop)
	tgt := httpTarget(t, server, "/")
	tgt.timeout = 20 * time.Millisecond
	success, output, err := newChecker(nil, "").check(t.Context(), tgt)
	assert.NoError(t, err)
	assert.False(t, success)
	assert.Contains(t, output, "Timeout")
}

func TestCheckIsInterrupted(t *testing.T) {
	entered, stop := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-stop
	}))
	defer server.Close()
	defer close(stop)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	_, _, err := newChecker(nil, "").check(ctx, httpTarget(t, server, "/"))
	assert.ErrorIs(t, err, context.Canceled, "stopping says nothing about the container")
}

func TestCheckTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	tgt := target{
		container: &v1.Container{},
		probe:     &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(port)}}},
		host:      "127.0.0.1", timeout: 5 * time.Second,
	}
	c := newChecker(nil, "")
	success, _, err := c.check(t.Context(), tgt)
	assert.NoError(t, err)
	assert.True(t, success)

	require.NoError(t, l.Close())
	success, output, err := c.check(t.Context(), tgt)
	assert.NoError(t, err)
	assert.False(t, success)
	assert.Contains(t, output, "refused")

	tgt.host = ""
	_, _, err = c.check(t.Context(), tgt)
	assert.ErrorIs(t, err, errNoAddress)
	tgt.probe.TCPSocket.Host = "127.0.0.1"
	_, _, err = c.check(t.Context(), tgt)
	assert.NoError(t, err, "the host of the probe comes first")
}

func TestCheckGRPC(t *testing.T) {
	serve := func(register func(*grpc.Server)) int32 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
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
		return int32(l.Addr().(*net.TCPAddr).Port)
	}
	states := health.NewServer()
	states.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	states.SetServingStatus("db", healthpb.HealthCheckResponse_NOT_SERVING)
	good := serve(func(s *grpc.Server) { healthpb.RegisterHealthServer(s, states) })
	bare := serve(func(*grpc.Server) {})
	db, none := "db", "none"

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := int32(l.Addr().(*net.TCPAddr).Port)
	require.NoError(t, l.Close())

	for _, tc := range []struct {
		name    string
		port    int32
		service *string
		success bool
		output  string
	}{
		{"serving", good, nil, true, "service healthy"},
		{"not serving", good, &db, false, `service unhealthy (responded with "NOT_SERVING")`},
		{"unknown service", good, &none, false, "unknown service"},
		{"no health service", bare, nil, false, "does not implement"},
		{"nobody listens", closed, nil, false, "refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			success, output, err := newChecker(nil, "kube-probe/test").check(t.Context(), target{
				container: &v1.Container{},
				probe:     &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: tc.port, Service: tc.service}}},
				host:      "127.0.0.1", timeout: 5 * time.Second,
			})
			assert.NoError(t, err)
			assert.Equal(t, tc.success, success)
			assert.Contains(t, output, tc.output)
		})
	}
}

func TestCheckWithoutHandler(t *testing.T) {
	_, _, err := newChecker(nil, "").check(t.Context(), target{probe: &v1.Probe{}, container: &v1.Container{}})
	assert.ErrorContains(t, err, "no handler")
}

func TestPortNumber(t *testing.T) {
	c := &v1.Container{Name: "app", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 8080}}}
	for _, tc := range []struct {
		port intstr.IntOrString
		want int
		err  string
	}{
		{intstr.FromInt32(80), 80, ""},
		{intstr.FromString("web"), 8080, ""},
		{intstr.FromString("9000"), 9000, ""},
		{intstr.FromString("none"), 0, `container "app" has no port named "none"`},
		{intstr.FromInt32(0), 0, "not between 1 and 65535"},
		{intstr.FromInt32(65536), 0, "not between 1 and 65535"},
	} {
		got, err := portNumber(tc.port, c)
		if tc.err != "" {
			assert.ErrorContains(t, err, tc.err)
			continue
		}
		assert.NoError(t, err)
		assert.Equal(t, tc.want, got)
	}
}

func TestPodAddress(t *testing.T) {
	podNet, hostNet := &v1.Pod{}, &v1.Pod{Spec: v1.PodSpec{HostNetwork: true}}
	both := []string{"10.0.0.1", "fd00::1"}
	assert.Equal(t, "10.0.0.1", podAddress(podNet, both, "192.0.2.1"))
	assert.Equal(t, "fd00::1", podAddress(podNet, both, "2001:db8::1"))
	assert.Equal(t, "fd00::1", podAddress(podNet, both[1:], "192.0.2.1"))
	assert.Equal(t, "", podAddress(podNet, nil, "192.0.2.1"))
	assert.Equal(t, "192.0.2.1", podAddress(hostNet, nil, "192.0.2.1"))
}
