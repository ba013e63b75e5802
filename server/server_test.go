package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent has the methods that the handlers of the read-only API call.
type agent struct {
	server.Agent
	pods []*v1.Pod
	err  error
}

func (a agent) Pods() []*v1.Pod      { return a.pods }
func (agent) Terminating() []*v1.Pod { return nil }
func (a agent) Healthy() error       { return a.err }

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return rec.Code, rec.Body.String()
}

func TestPodsIsAPodList(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-n1", Namespace: "default"},
		Status: v1.PodStatus{Phase: v1.PodRunning}}
	code, body := get(t, server.Handler(agent{pods: []*v1.Pod{pod}}, server.Options{}), "/pods")
	require.Equal(t, http.StatusOK, code)
	var list v1.PodList
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	assert.Equal(t, "PodList", list.Kind)
	assert.Equal(t, "v1", list.APIVersion)
	assert.Equal(t, []v1.Pod{*pod}, list.Items)
}

func TestNoPodsIsAnEmptyList(t *testing.T) {
	_, body := get(t, server.Handler(agent{}, server.Options{}), "/pods")
	assert.Contains(t, body, `"items":[]`)
}

func TestHealthz(t *testing.T) {
	code, body := get(t, server.Handler(agent{}, server.Options{}), "/healthz")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "ok", body)
	code, body = get(t, server.Handler(agent{err: errors.New("the loop hangs")}, server.Options{}), "/healthz")
	assert.Equal(t, http.StatusInternalServerError, code)
	assert.Contains(t, body, "the loop hangs")

	code, body = get(t, server.Healthz(agent{}, server.Options{}), "/healthz")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "ok", body)
	code, _ = get(t, server.Healthz(agent{}, server.Options{}), "/pods")
	assert.Equal(t, http.StatusNotFound, code, "it serves nothing else")
}

func TestMetrics(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "metrics of ", r.URL.Path) })
	opts := server.Options{Metrics: h}
	code, body := get(t, server.Handler(agent{}, opts), "/metrics")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "metrics of /metrics", body)
	code, _ = get(t, server.Handler(agent{}, opts), "/metrics/cadvisor")
	assert.Equal(t, http.StatusNotFound, code)
	code, _ = get(t, server.Handler(agent{}, server.Options{}), "/metrics")
	assert.Equal(t, http.StatusNotFound, code)
}

func TestProbeMetrics(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "metrics of ", r.URL.Path) })
	code, body := get(t, server.Handler(agent{}, server.Options{ProbeMetrics: h}), "/metrics/probes")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "metrics of /metrics/probes", body)
	code, _ = get(t, server.Handler(agent{}, server.Options{Metrics: h}), "/metrics/probes")
	assert.Equal(t, http.StatusNotFound, code)
}

// results are those of health checks.
type results []string

func (r *results) HealthChecked(check string, err error) {
	*r = append(*r, fmt.Sprint(check, " ", err))
}

func TestHealthMetrics(t *testing.T) {
	var seen results
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "metrics of ", r.URL.Path) })
	opts := server.Options{HealthChecked: seen.HealthChecked, SLIMetrics: h}
	code, body := get(t, server.Handler(agent{}, opts), "/metrics/slis")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "metrics of /metrics/slis", body)
	code, _ = get(t, server.Handler(agent{}, server.Options{Metrics: h}), "/metrics/slis")
	assert.Equal(t, http.StatusNotFound, code)

	sick := agent{err: errors.New("the loop hangs")}
	for name, h := range map[string]http.Handler{
		"Handler": server.Handler(sick, opts), "Healthz": server.Healthz(sick, opts),
		"Kubelet": server.Kubelet(sick, opts), "Control": server.Control(sick, opts),
	} {
		seen = nil
		get(t, h, "/healthz?exclude=ping")
		get(t, h, "/healthz/syncloop") // a single check does not count
		assert.Equal(t, results{"log <nil>", "syncloop the loop hangs"}, seen, name)
	}
}

func TestServeStopsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l, server.Handler(agent{}, server.Options{})) }()
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: tr}).Get("http://" + l.Addr().String() + "/healthz")
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	require.NoError(t, resp.Body.Close())
	cancel()
	require.NoError(t, <-served)
	_, err = net.Dial("tcp", l.Addr().String())
	require.Error(t, err)
}

func ExampleHandler() {
	h := server.Handler(agent{}, server.Options{})
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	fmt.Println(rec.Code, rec.Body)
	// Output: 200 ok
}

// brokenListener fails when the function is called.
type brokenListener struct {
	net.Listener
	broken chan struct{}
}

func (l brokenListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.broken
		return nil, errors.New("too many open files")
	}
	return conn, nil
}

// When its listener fails, the server ends its requests and waits for their handlers before it returns.
func TestServeWaitsForHandlersWhenTheListenerFails(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := brokenListener{inner, make(chan struct{})}
	begun, ended := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		close(begun)
		<-req.Context().Done()
		close(ended)
	})
	served := make(chan error, 1)
	go func() { served <- server.Serve(t.Context(), l, h) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if resp, err := client.Get("http://" + inner.Addr().String()); err == nil {
			//nolint:noctx // it ends with the server
			_ = resp.Body.Close()
		}
	}()
	<-begun
	close(l.broken)
	require.NoError(t, inner.Close())
	require.ErrorContains(t, <-served, "too many open files")
	select {
	case <-ended:
	default:
		t.Error("a handler still runs")
	}
	<-answered
}
