package prober_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
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

	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// maxOutput is how much output counts, in bytes, as in kubelet.
const maxOutput = 10 << 10

// execFunc is an Execer.
type execFunc func(ctx context.Context, id runtime.ContainerID, cmd []string,
	timeout time.Duration) (runtime.ExecResult, error)

func (f execFunc) Exec(ctx context.Context, id runtime.ContainerID, cmd []string,
	timeout time.Duration) (runtime.ExecResult, error) {
	return f(ctx, id, cmd, timeout)
}

// check makes the check of the one default handler that makes the target's probe.
func check(ctx context.Context, t *testing.T, rt runtime.Execer, target prober.Target) (prober.Outcome, string, error) {
	t.Helper()
	return checkWith(ctx, t, rt, prober.Options{}, target)
}

// checkWith is check with options of handlers.
func checkWith(ctx context.Context, t *testing.T, rt runtime.Execer, opts prober.Options,
	target prober.Target) (prober.Outcome, string, error) {
	t.Helper()
	opts.UserAgent = "kube-probe/test"
	target.Container.ReadinessProbe, target.Kind = target.Probe, runtime.ReadinessProbe
	var found prober.Handler
	for _, h := range prober.DefaultHandlers(rt, opts) {
		assert.Nil(t, h.Probe(&v1.Pod{}, target.Container, runtime.LivenessProbe), h.Name())
		if p := h.Probe(&v1.Pod{}, target.Container, runtime.ReadinessProbe); p != nil {
			assert.Nil(t, found, "a second handler")
			assert.Same(t, target.Probe, p)
			found = h
		}
	}
	require.NotNil(t, found)
	return found.Check(ctx, target)
}

func TestExecHandler(t *testing.T) {
	broken := errors.New("no connection")
	for _, tc := range []struct {
		name    string
		result  runtime.ExecResult
		err     error
		outcome prober.Outcome
		output  string
		wantErr error
	}{
		{"succeeds", runtime.ExecResult{Output: []byte("fine")}, nil, prober.Success, "fine", nil},
		{"fails", runtime.ExecResult{Output: []byte("no"), ExitCode: 3}, nil, prober.Failure, "no", nil},
		{"times out", runtime.ExecResult{}, fmt.Errorf("exec: %w", context.DeadlineExceeded), prober.Failure, "command timed out: \"check one\" timed out after 1s", nil},
		{"cannot be run", runtime.ExecResult{}, broken, prober.Unknown, "", broken},
		{"too much output", runtime.ExecResult{Output: []byte(strings.Repeat("x", maxOutput+1))}, nil, prober.Success, strings.Repeat("x", maxOutput), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := 0
			rt := execFunc(func(_ context.Context, id runtime.ContainerID, cmd []string,
				timeout time.Duration) (runtime.ExecResult, error) {
				calls++
				assert.Equal(t, "fake://1", id.String())
				assert.Equal(t, []string{"check", "one"}, cmd)
				assert.Equal(t, time.Second, timeout)
				return tc.result, tc.err
			})
			outcome, output, err := check(t.Context(), t, rt, prober.Target{
				Container: &v1.Container{Env: []v1.EnvVar{{Name: "A", Value: "one"}}},
				Probe: &v1.Probe{
					ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check", "$(A)"}}}},
				ContainerID: runtime.ContainerID{Type: "fake", ID: "1"}, Timeout: time.Second,
			})
			assert.Equal(t, tc.outcome, outcome)
			assert.Equal(t, tc.output, output)
			assert.ErrorIs(t, err, tc.wantErr)
			assert.Equal(t, 1, calls)
		})
	}
}

func TestExecIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	rt := execFunc(func(ctx context.Context, _ runtime.ContainerID, _ []string, _ time.Duration) (runtime.ExecResult,
		error) {
		cancel()
		return runtime.ExecResult{}, context.DeadlineExceeded
	})
	outcome, _, err := check(ctx, t, rt, execTarget("x"))
	assert.Equal(t, prober.Unknown, outcome)
	assert.ErrorIs(t, err, context.Canceled, "stopping says nothing about the container")
}

func execTarget(arg string, env ...v1.EnvVar) prober.Target {
	return prober.Target{
		Container: &v1.Container{Env: env},
		Probe:     &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{arg}}}},
	}
}

// expand returns a command of one word as the runtime receives it.
func expand(t *testing.T, word string, env ...v1.EnvVar) (got string) {
	t.Helper()
	rt := execFunc(func(_ context.Context, _ runtime.ContainerID, cmd []string, _ time.Duration) (runtime.ExecResult,
		error) {
		require.Len(t, cmd, 1)
		got = cmd[0]
		return runtime.ExecResult{}, nil
	})
	_, _, err := check(t.Context(), t, rt, execTarget(word, env...))
	require.NoError(t, err)
	return got
}

func TestExecExpands(t *testing.T) {
	env := []v1.EnvVar{{Name: "A", Value: "one"}, {Name: "B", Value: "$(A)"},
		{Name: "F", ValueFrom: &v1.EnvVarSource{}}}
	for in, want := range map[string]string{
		"plain":       "plain",
		"$(A)":        "one",
		"x$(A)y$(A)z": "xoneyonez",
		"$(B)":        "$(A)", // values are not expanded again
		"$(F)":        "",     // not known here
		"$(NONE)":     "$(NONE)",
		"$$(A)":       "$(A)",
		"$$$(A)":      "$one",
		"$A":          "$A",
		"$(A":         "$(A",
		"end$":        "end$",
		"$()":         "$()",
		"":            "",
	} {
		assert.Equal(t, want, expand(t, in, env...), in)
	}
}

// The command of a small spec grows without a bound.
func TestExecCommandIsBounded(t *testing.T) {
	rt := execFunc(func(context.Context, runtime.ContainerID, []string, time.Duration) (runtime.ExecResult, error) {
		t.Error("the command was sent to the runtime")
		return runtime.ExecResult{}, nil
	})
	large := v1.EnvVar{Name: "A", Value: strings.Repeat("x", 1<<20)}
	for _, command := range [][]string{{strings.Repeat("$(A)", 100_000)}, slices.Repeat([]string{"$(A)"}, 100_000)} {
		target := execTarget("", large)
		target.Probe.Exec.Command = command
		outcome, output, err := check(t.Context(), t, rt, target)
		require.NoError(t, err)
		assert.Equal(t, prober.Failure, outcome)
		assert.Contains(t, output, "too long")
	}
	// What cannot be shown is not held: the text of a timeout has the command.
	rt = func(context.Context, runtime.ContainerID, []string, time.Duration) (runtime.ExecResult, error) {
		return runtime.ExecResult{}, context.DeadlineExceeded
	}
	_, output, err := check(t.Context(), t, rt, execTarget("$(A)", large))
	require.NoError(t, err)
	assert.Less(t, len(output), 2*maxOutput)
}

func FuzzExecExpands(f *testing.F) {
	for _, s := range []string{"$(A)", "$$(A)", "$$$", "$(", "a$(b$(A))"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// Without variables only $$ is changed, and what has no $ is untouched.
		out := expand(t, s)
		if !strings.Contains(s, "$") && out != s {
			t.Fatalf("%q became %q", s, out)
		}
		if !strings.Contains(s, "$$") && out != s {
			t.Fatalf("%q became %q", s, out)
		}
	})
}

func httpTarget(t *testing.T, server *httptest.Server, path string, headers ...v1.HTTPHeader) prober.Target {
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	return prober.Target{
		Container: &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}},
		Probe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
			Scheme: v1.URIScheme(strings.ToUpper(u.Scheme)), Path: path, Port: intstr.FromString("web"),
			HTTPHeaders: headers,
		}}},
		Address: u.Hostname(),
		Timeout: 5 * time.Second,
	}
}

// A container answers with as many headers as a client reads.
func TestHTTPHeadersAreBounded(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		out := bufio.NewWriter(conn)
		_, _ = out.WriteString("HTTP/1.1 200 OK\r\n")
		for i := 0; i < 1_000_000 && err == nil; i++ {
			_, err = fmt.Fprintf(out, "%x:\r\n", i)
		}
		_, _ = out.WriteString("\r\n")
		_ = out.Flush()
	}()
	target := httpTarget(t, &httptest.Server{URL: "http://" + lis.Addr().String()}, "/")
	outcome, output, err := check(t.Context(), t, nil, target)
	require.NoError(t, err)
	assert.Equal(t, prober.Failure, outcome)
	assert.Contains(t, output, "server response headers exceeded 65536 bytes")
	require.NoError(t, lis.Close())
	<-served
}

// A container that speaks HTTP/2 sends frames without end that are no part of an answer.
func TestHTTPFramesAreBounded(t *testing.T) {
	long := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = w.Write(make([]byte, 2<<20))
	}))
	long.EnableHTTP2 = true
	long.StartTLS()
	defer long.Close()
	for range 50 { // a body of any length is an answer
		outcome, output, err := check(t.Context(), t, nil, httpTarget(t, long, "/"))
		require.NoError(t, err)
		require.Equal(t, prober.Success, outcome, output)
		require.Len(t, output, maxOutput)
	}
	lis, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: long.TLS.Certificates,
		NextProtos: []string{"h2"}})
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		_, err = conn.Write([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00")) // SETTINGS
		for err == nil {
			_, err = conn.Write(bytes.Repeat([]byte("\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"), 100)) // PING
		}
	}()
	outcome, output, err := check(t.Context(), t, nil,
		httpTarget(t, &httptest.Server{URL: "https://" + lis.Addr().String()}, "/"))
	require.NoError(t, err)
	assert.Equal(t, prober.Failure, outcome)
	assert.Contains(t, output, "the server sends more than 262144 bytes")
	require.NoError(t, lis.Close())
	<-served
}

func TestHTTPHandler(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/status/", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/status/"))
		w.WriteHeader(code)
		fmt.Fprint(w, "secret")
	})
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("u"), http.StatusFound)
	})
	mux.HandleFunc("/loop",
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/seen", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s|%s|%s|%s|%s|%s", r.Host, r.UserAgent(), r.Header.Get("Accept"),
			r.Header.Get("Accept-Encoding"), r.Header.Get("X-A"), r.URL.RawQuery)
	})
	mux.HandleFunc("/long",
		func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("x", 2*maxOutput)) })
	server := httptest.NewServer(mux)
	defer server.Close()
	secure := httptest.NewTLSServer(mux)
	defer secure.Close()
	secure.Config.ErrorLog = nil

	for _, tc := range []struct {
		path    string
		headers []v1.HTTPHeader
		outcome prober.Outcome
		output  string // "*": any
	}{
		{path: "/status/200", outcome: prober.Success, output: "secret"},
		{path: "status/204", outcome: prober.Success},
		{path: "/status/399", outcome: prober.Warning, output: "Probe terminated redirects, Response body: secret"},
		{path: "/status/400", outcome: prober.Failure, output: "HTTP probe failed with statuscode: 400"},
		{path: "/status/503", outcome: prober.Failure, output: "HTTP probe failed with statuscode: 503"},
		{path: "/to?u=/status/200", outcome: prober.Success, output: "secret"},
		{path: "/to?u=/status/500", outcome: prober.Failure, output: "HTTP probe failed with statuscode: 500"},
		{path: "/to?u=http://other.invalid/", outcome: prober.Warning, output: "*"},
		{path: "/loop", outcome: prober.Failure, output: "*"},
		{path: "/long", outcome: prober.Success, output: strings.Repeat("x", maxOutput)},
		{path: "/seen?q=1", outcome: prober.Success, output: "HOST|kube-probe/test|*/*|||q=1"},
		{path: "/seen", outcome: prober.Success, output: "pod.example|mine|||yes|", headers: []v1.HTTPHeader{
			{Name: "Host", Value: "pod.example"}, {Name: "user-agent", Value: "mine"}, {Name: "Accept"}, {Name: "X-A", Value: "yes"},
		}},
	} {
		for _, s := range []*httptest.Server{server, secure} {
			tgt := httpTarget(t, s, tc.path, tc.headers...)
			t.Run(string(tgt.Probe.HTTPGet.Scheme)+" "+tc.path, func(t *testing.T) {
				outcome, output, err := check(t.Context(), t, nil, tgt)
				require.NoError(t, err)
				assert.Equal(t, tc.outcome, outcome)
				if tc.output != "*" {
					assert.Equal(t, strings.Replace(tc.output, "HOST", s.Listener.Addr().String(), 1), output)
				}
			})
		}
	}
}

func TestHTTPTimeoutIsAFailure(t *testing.T) {
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer server.Close()
	defer close(stop)
	tgt := httpTarget(t, server, "/")
	tgt.Timeout = 20 * time.Millisecond
	outcome, output, err := check(t.Context(), t, nil, tgt)
	assert.NoError(t, err)
	assert.Equal(t, prober.Failure, outcome)
	assert.Contains(t, output, "Timeout")
}

func TestHTTPIsInterrupted(t *testing.T) {
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
	_, _, err := check(ctx, t, nil, httpTarget(t, server, "/"))
	assert.ErrorIs(t, err, context.Canceled, "stopping says nothing about the container")
}

func TestTCPHandler(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	tgt := prober.Target{
		Container: &v1.Container{},
		Probe:     &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(port)}}},
		Address:   "127.0.0.1", Timeout: 5 * time.Second,
	}
	outcome, _, err := check(t.Context(), t, nil, tgt)
	assert.NoError(t, err)
	assert.Equal(t, prober.Success, outcome)

	require.NoError(t, l.Close())
	outcome, output, err := check(t.Context(), t, nil, tgt)
	assert.NoError(t, err)
	assert.Equal(t, prober.Failure, outcome)
	assert.Contains(t, output, "refused")

	tgt.Address = ""
	_, _, err = check(t.Context(), t, nil, tgt)
	assert.ErrorIs(t, err, prober.ErrNoAddress)
	tgt.Probe.TCPSocket.Host = "127.0.0.1"
	_, _, err = check(t.Context(), t, nil, tgt)
	assert.NoError(t, err, "the host of the probe comes first")
}

func TestGRPCHandler(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	states := health.NewServer()
	states.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	states.SetServingStatus("db", healthpb.HealthCheckResponse_NOT_SERVING)
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, states)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	defer func() {
		s.Stop()
		<-ended
	}()
	db, none := "db", "none"
	target := func(service *string) prober.Target {
		return prober.Target{
			Container: &v1.Container{},
			Probe: &v1.Probe{ProbeHandler: v1.ProbeHandler{
				GRPC: &v1.GRPCAction{Port: int32(l.Addr().(*net.TCPAddr).Port), Service: service}}},
			Address: "127.0.0.1", Timeout: 5 * time.Second,
		}
	}
	for _, tc := range []struct {
		service *string
		outcome prober.Outcome
		output  string
	}{
		{nil, prober.Success, "service healthy"},
		{&db, prober.Failure, `service unhealthy (responded with "NOT_SERVING")`},
		{&none, prober.Failure, "unknown service"},
	} {
		outcome, output, err := check(t.Context(), t, nil, target(tc.service))
		assert.NoError(t, err)
		assert.Equal(t, tc.outcome, outcome)
		assert.Contains(t, output, tc.output)
	}

	tgt := target(nil)
	tgt.Address = ""
	_, _, err = check(t.Context(), t, nil, tgt)
	assert.ErrorIs(t, err, prober.ErrNoAddress)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = check(ctx, t, nil, target(nil))
	assert.ErrorIs(t, err, context.Canceled)
}

func TestHostPort(t *testing.T) {
	c := &v1.Container{Name: "app", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 8080}}}
	for _, tc := range []struct {
		port intstr.IntOrString
		want string
		err  string
	}{
		{intstr.FromInt32(80), "80", ""},
		{intstr.FromString("web"), "8080", ""},
		{intstr.FromString("9000"), "9000", ""},
		{intstr.FromString("none"), "", `container "app" has no port named "none"`},
		{intstr.FromInt32(0), "", "not between 1 and 65535"},
		{intstr.FromInt32(65536), "", "not between 1 and 65535"},
	} {
		tgt := prober.Target{Container: c, Address: "fd00::1"}
		got, err := tgt.HostPort("", tc.port)
		if tc.err != "" {
			assert.ErrorContains(t, err, tc.err)
			continue
		}
		assert.NoError(t, err)
		assert.Equal(t, "[fd00::1]:"+tc.want, got)
		got, err = tgt.HostPort("db.example", tc.port)
		assert.NoError(t, err)
		assert.Equal(t, "db.example:"+tc.want, got)
		tgt.Address = ""
		_, err = tgt.HostPort("", tc.port)
		assert.ErrorIs(t, err, prober.ErrNoAddress)
	}
}
