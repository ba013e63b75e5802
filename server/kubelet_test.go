package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/profiles"
)

func request(t *testing.T, h http.Handler, method, path, body string, header http.Header) (int, string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	req.Header = header
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec.Code, rec.Body.String()
}

// kubelet returns everything that the package serves.
func kubelet(t *testing.T, opts server.Options) http.Handler {
	t.Helper()
	n := newNode(t)
	return server.Kubelet(n, opts)
}

func allOptions() server.Options {
	page := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = w.Write([]byte(req.URL.Path)) })
	return server.Options{
		Metrics: page, ProbeMetrics: page, Profiles: profiles.Handler(), Version: "v1",
		Config:       func() (any, error) { return map[string]any{"maxPods": 7}, nil },
		Flags:        func() map[string]string { return map[string]string{"v": "2", "port": "10250"} },
		SetVerbosity: func(string) error { return nil },
		RunningPods:  func(context.Context) ([]*runtime.Pod, error) { return nil, nil },
	}
}

func TestHealthChecks(t *testing.T) {
	fine, broken := server.Healthz(agent{}, server.Options{}), server.Healthz(agent{err: errors.New("the loop hangs")},
		server.Options{})
	for _, tc := range []struct {
		h    http.Handler
		path string
		code int
		body string
	}{
		{fine, "/healthz", 200, "ok"},
		{fine, "/healthz/syncloop", 200, "ok"},
		{fine, "/healthz?verbose", 200, "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n"},
		{fine, "/healthz/other", 404, "404 page not found\n"},
		{broken, "/healthz", 500, "[+]ping ok\n[+]log ok\n[-]syncloop failed: the loop hangs\nhealthz check failed\n"},
		{broken, "/healthz/ping", 200, "ok"},
		{broken, "/healthz/log", 200, "ok"},
		{broken, "/healthz/syncloop", 500, "internal server error: the loop hangs\n"},
		{broken, "/healthz?exclude=syncloop", 200, "ok"},
		{broken, "/healthz?exclude=syncloop&verbose", 200, "[+]ping ok\n[+]log ok\n[+]syncloop excluded: ok\nhealthz check passed\n"},
	} {
		code, body := get(t, tc.h, tc.path)
		assert.Equal(t, tc.code, code, tc.path)
		assert.Equal(t, tc.body, body, tc.path)
	}
}

func TestFurtherHealthChecks(t *testing.T) {
	h := server.Healthz(agent{},
		server.Options{HealthChecks: []server.HealthCheck{{Name: "device-plugin",
			Run: func() error { return errors.New("no socket") }}}})
	code, body := get(t, h, "/healthz")
	assert.Equal(t, 500, code)
	assert.Equal(t, "[+]ping ok\n[+]log ok\n[+]syncloop ok\n[-]device-plugin failed: no socket\nhealthz check failed\n",
		body)
	code, _ = get(t, h, "/healthz/device-plugin")
	assert.Equal(t, 500, code)
}

func TestHealthOfTheLog(t *testing.T) {
	for err, want := range map[error]int{nil: 200, errors.New("logging blocked"): 500} {
		h := server.Healthz(agent{}, server.Options{LogHealthy: func() error { return err }})
		code, body := get(t, h, "/healthz/log")
		assert.Equal(t, want, code, body)
		code, body = get(t, h, "/healthz")
		assert.Equal(t, want, code, body)
		code, _ = get(t, h, "/healthz/syncloop")
		assert.Equal(t, http.StatusOK, code)
	}
}

func TestZPages(t *testing.T) {
	h := kubelet(t, allOptions())
	code, body := get(t, h, "/configz")
	assert.Equal(t, http.StatusOK, code)
	assert.JSONEq(t, `{"kubeletconfig":{"maxPods":7}}`, body)

	_, body = get(t, h, "/flagz")
	assert.True(t, strings.HasPrefix(body, "\nkubelet flagz\nWarning: "), body)
	assert.True(t, strings.HasSuffix(body, "\nport=10250\nv=2\n"), body)
	asJSON := http.Header{"Accept": {"application/json;v=v1beta1;g=config.k8s.io;as=Flagz"}}
	_, body = request(t, h, "GET", "/flagz", "", asJSON)
	assert.JSONEq(t,
		`{"kind":"Flagz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"kubelet"},"flags":{"port":"10250","v":"2"}}`, body)

	_, body = get(t, h, "/statusz")
	assert.Contains(t, body, "\nBinary version: v1\n")
	assert.Contains(t, body, "\nPaths: /configz /containerLogs /debug /flagz /healthz /logs /metrics /pods /run "+
		"/runningpods\n")
	_, body = request(t, h, "GET", "/statusz", "", asJSON)
	var status struct {
		Kind, BinaryVersion string
		Paths               []string
	}
	require.NoError(t, json.Unmarshal([]byte(body), &status))
	assert.Equal(t, "Statusz", status.Kind)
	assert.Equal(t, "v1", status.BinaryVersion)
	assert.Contains(t, status.Paths, "/pods")
}

func TestVerbosity(t *testing.T) {
	var level string
	opts := allOptions()
	opts.SetVerbosity = func(l string) error {
		if level = l; l == "x" {
			return errors.New("not a number")
		}
		return nil
	}
	h := kubelet(t, opts)
	code, body := request(t, h, "PUT", "/debug/flags/v", "4\n", nil)
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "successfully set klog.logging.verbosity to 4", body)
	assert.Equal(t, "4", level)
	code, body = request(t, h, "PUT", "/debug/flags/v", "x", nil)
	assert.Equal(t, http.StatusBadRequest, code)
	assert.Equal(t, "not a number\n", body)
	code, _ = request(t, h, "PUT", "/debug/flags/v", strings.Repeat("1", 1000), nil)
	assert.Equal(t, http.StatusBadRequest, code)
	code, _ = request(t, h, "GET", "/debug/flags/v", "", nil)
	assert.Equal(t, http.StatusNotAcceptable, code)
}

// The pods that have resources, as the agent has them.
func TestAllocatedPods(t *testing.T) {
	n, opts := newNode(t), allOptions()
	code, _ := get(t, server.Kubelet(n, opts), "/allocatedPods")
	assert.Equal(t, http.StatusNotFound, code, "the gate is off")
	opts.AllocatedPods = true
	h := server.Kubelet(n, opts)
	for _, path := range []string{"/allocatedPods", "/allocatedPods/"} {
		code, body := get(t, h, path)
		assert.Equal(t, http.StatusOK, code)
		var list v1.PodList
		require.NoError(t, json.Unmarshal([]byte(body), &list))
		require.Len(t, list.Items, 1)
		assert.Equal(t, n.pod.Spec, list.Items[0].Spec)
		assert.Zero(t, list.Items[0].Status)
	}
	code, body := get(t, h, "/allocatedPods/default/web/u1")
	assert.Equal(t, http.StatusOK, code)
	var got v1.Pod
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	assert.Equal(t, "Pod", got.Kind)
	assert.Equal(t, n.pod.UID, got.UID)
	for path, want := range map[string]int{"default/web": http.StatusOK, "default/web/u2": http.StatusNotFound,
		"other/web": http.StatusNotFound} {
		code, _ := get(t, h, "/allocatedPods/"+path)
		assert.Equal(t, want, code, path)
	}
	n.pod.Status.Phase = v1.PodFailed
	code, _ = get(t, h, "/allocatedPods/default/web")
	assert.Equal(t, http.StatusNotFound, code, "it has ended")
}

func TestRunningPods(t *testing.T) {
	opts := allOptions()
	list, failure := []*runtime.Pod{
		{PodRef: runtime.PodRef{UID: "u1", Namespace: "default", Name: "web"}, Containers: []runtime.Container{
			{Name: "new", State: runtime.ContainerRunning}, {Name: "old", State: runtime.ContainerExited},
		}},
		{PodRef: runtime.PodRef{UID: "u2", Name: "ended"}, Containers: []runtime.Container{{Name: "old", State: runtime.ContainerExited}}},
	}, error(nil)
	opts.RunningPods = func(context.Context) ([]*runtime.Pod, error) { return list, failure }
	h := kubelet(t, opts)
	for _, path := range []string{"/runningpods", "/runningpods/"} {
		code, body := get(t, h, path)
		assert.Equal(t, http.StatusOK, code)
		var pods v1.PodList
		require.NoError(t, json.Unmarshal([]byte(body), &pods))
		require.Len(t, pods.Items, 1)
		assert.Equal(t, "web", pods.Items[0].Name)
		assert.Equal(t, []v1.Container{{Name: "new"}}, pods.Items[0].Spec.Containers)
	}
	failure = errors.New("the runtime is away")
	code, _ := get(t, h, "/runningpods")
	assert.Equal(t, http.StatusInternalServerError, code)
}

// A runtime that hangs holds up nobody who asks for something else, and the request ends with its
// client.
func TestRunningPodsOfARuntimeThatHangs(t *testing.T) {
	opts := allOptions()
	begun, ended := make(chan struct{}), make(chan error, 1)
	opts.RunningPods = func(ctx context.Context) ([]*runtime.Pod, error) {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}
	h := kubelet(t, opts)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan int, 1)
	go func() {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/runningpods/", nil))
		answer <- rec.Code
	}()
	<-begun
	for _, path := range []string{"/pods", "/healthz", "/configz"} {
		code, _ := get(t, h, path)
		assert.Equal(t, http.StatusOK, code)
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	assert.Equal(t, http.StatusInternalServerError, <-answer)
}

// The port without authentication has what kubelet's has. Other paths of kubelet are disabled, with
// its words, or do not exist.
func TestReadOnlyPort(t *testing.T) {
	n := newNode(t)
	h := server.Handler(n, everything(n))
	for path, want := range map[string]int{
		"/healthz": 200, "/healthz/ping": 200, "/healthz/log": 200, "/healthz/syncloop": 200, "/pods": 200, "/pods/": 200,
		"/metrics": 200, "/metrics/cadvisor": 200, "/metrics/resource": 200, "/metrics/probes": 200, "/metrics/slis": 200, "/stats/summary": 200,
		"/run/default/web/main": 405, "/exec/default/web/main": 405, "/attach/default/web/main": 405, "/portForward/default/web": 405, "/containerLogs/default/web/main": 405,
		"/runningpods/": 405, "/debug/pprof/": 405, "/debug/pprof/heap": 405, "/logs/": 405, "/logs/syslog": 405,
		"/checkpoint/default/web/main": 404, "/configz": 404, "/flagz": 404, "/statusz": 404, "/debug/flags/v": 404, "/debug/history/default/web": 404, "/stats": 404, "/": 404, "/unknown": 404,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			code, body := request(t, h, method, path, "", nil)
			switch {
			case want == http.StatusMethodNotAllowed:
				assert.Equal(t, want, code, path)
				assert.Equal(t, "Debug endpoints are disabled.\n", body, path)
			case want == http.StatusNotFound:
				assert.Equal(t, want, code, path)
				assert.Equal(t, "404 page not found\n", body, path)
			case method == http.MethodGet || path == "/stats/summary": // kubelet has it by POST, too
				assert.Equal(t, want, code, path)
			default:
				assert.Equal(t, http.StatusMethodNotAllowed, code, "POST %s", path)
			}
		}
	}
}

// What does not exist is answered with kubelet's words, which differ from path to path. Only a container
// that does not exist is status 500 in kubelet, where /run begins to run the command.
func TestNotFound(t *testing.T) {
	n := newNode(t)
	h := server.Kubelet(n, everything(n))
	for asked, want := range map[string]string{
		"GET /containerLogs/default/other/main": `pod "other" does not exist`,
		"GET /containerLogs/default/web/other":  `container "other" not found in pod "web"`,
		"POST /run/default/other/main?cmd=a":    "pod does not exist",
		"POST /run/default/web/u2/main?cmd=a":   "pod does not exist",
		"POST /run/default/web/other?cmd=a":     `container not found ("other")`,
		"POST /checkpoint/default/other/main":   "pod does not exist",
		"POST /checkpoint/default/web/other":    "container other does not exist",
		"GET /debug/history/default/other":      `pod "other" does not exist`,
	} {
		method, path, _ := strings.Cut(asked, " ")
		code, body := request(t, h, method, path, "", nil)
		assert.Equal(t, http.StatusNotFound, code, path)
		assert.Equal(t, want, body, path)
	}
}

// What is switched off answers as kubelet's; what is missing does not exist.
func TestSwitches(t *testing.T) {
	all := allOptions()
	off := all
	off.NoDebugging = true
	bare := server.Options{}
	for _, tc := range []struct {
		opts server.Options
		path string
		code int
	}{
		{all, "/debug/pprof/", 200}, {all, "/debug/pprof/heap", 200}, {all, "/debug/pprof/cmdline", 200}, {all, "/pods/", 200},
		{bare, "/debug/pprof/heap", 405}, {bare, "/debug/flags/v", 405}, {bare, "/configz", 404}, {bare, "/flagz", 404}, {bare, "/statusz", 404}, {bare, "/runningpods/", 404}, {bare, "/metrics", 404},
		{off, "/containerLogs/default/web/main", 405}, {off, "/exec/default/web/main", 405}, {off, "/attach/a/b/c", 405}, {off, "/run/a/b/c", 405}, {off, "/portForward/a/b", 405},
		{off, "/runningpods/", 405}, {off, "/logs/", 405}, {off, "/debug/pprof/heap", 405}, {off, "/debug/flags/v", 404}, {off, "/configz", 404},
		{off, "/healthz", 200}, {off, "/pods", 200}, {off, "/metrics", 200},
	} {
		code, _ := get(t, kubelet(t, tc.opts), tc.path)
		assert.Equal(t, tc.code, code, tc.path)
	}
	code, _ := get(t, server.Handler(agent{}, all), "/configz")
	assert.Equal(t, http.StatusNotFound, code, "not on the read-only port")
}
