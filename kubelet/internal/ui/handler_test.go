package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const hostile = `<img src=x onerror=alert(1)>`

const token = "THETOKEN"

// mixed returns a pod with a container that waits and one that runs.
func mixed() *v1.Pod {
	return podtest.Pod(v1.PodRunning, podtest.Waiting("a", "ErrImagePull", hostile), podtest.Running("b", true))
}

// socket serves the socket of an agent that has a pod, and one that is gone, and counts requests.
func socket(t *testing.T, pod *v1.Pod) (path string, requests *[]string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ui") // short, for the socket in it
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	requests = new([]string)
	answer := func(w http.ResponseWriter, v any) { assert.NoError(t, json.NewEncoder(w).Encode(v)) }
	pod.UID, pod.Labels = "u1", map[string]string{"app": "web"}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /pods",
		func(w http.ResponseWriter, _ *http.Request) { answer(w, v1.PodList{Items: []v1.Pod{*pod}}) })
	mux.HandleFunc("GET /gone", func(w http.ResponseWriter, _ *http.Request) {
		answer(w,
			[]recent.Gone{{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u2", Namespace: "default", Name: "old"}},
				At: podtest.Noon}})
	})
	mux.HandleFunc("GET /problems", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, []control.Problem{{Path: "/m", Error: hostile}})
	})
	unhealthy := []runtime.Event{{Pod: runtime.PodRef{UID: "u1"}, Type: v1.EventTypeWarning, Reason: "Unhealthy",
		Message: "Readiness probe failed: 503"}}
	mux.HandleFunc("GET /events/{uid}", func(w http.ResponseWriter, _ *http.Request) { answer(w, unhealthy) })
	mux.HandleFunc("GET /events/{$}", func(w http.ResponseWriter, req *http.Request) {
		assert.Equal(t, []string{"u1"}, req.URL.Query()["uid"], "of the pods that wait")
		answer(w, unhealthy)
	})
	mux.HandleFunc("GET /stats/summary", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w,
			`{"pods":[{"podRef":{"uid":"u1"},"cpu":{"time":"2026-01-02T12:00:00Z","usageNanoCores":250000000},"memory":{"time":"2026-01-02T12:00:00Z","workingSetBytes":4096},`+
				`"containers":[{"name":"b","memory":{"time":"2026-01-02T12:00:00Z","workingSetBytes":2048}}]}]}`)
	})
	mux.HandleFunc("GET /history/{uid}", func(w http.ResponseWriter, req *http.Request) {
		answer(w, history.Entry{Record: runtime.Record{Stage: runtime.StageSeen, Kind: runtime.KindContainerExited,
			Container: "a", ExitCode: 3, Message: hostile}, Seq: 1, Count: 1})
	})
	mux.HandleFunc("GET /containerLogs/{ns}/{pod}/{uid}/{container}", func(w http.ResponseWriter, req *http.Request) {
		if req.PathValue("container") != "b" {
			http.Error(w, "container is waiting to start", http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprintf(w, "%s %s\n", req.URL.Query().Encode(), hostile)
	})
	mux.HandleFunc("POST /restart/u1", func(_ http.ResponseWriter, req *http.Request) {
		assert.Equal(t, url.Values{"container": {"a"}, "by": {"the page, user unknown"}}, req.URL.Query())
	})
	mux.HandleFunc("GET /exec/default/web-n1/u1/a", func(w http.ResponseWriter, req *http.Request) {
		assert.Equal(t, url.Values{"command": {"sh", "-l"}, "input": {"1"}, "output": {"1"}, "tty": {"1"}}, req.URL.Query())
		assert.Equal(t, []string{"v5.channel.k8s.io"}, req.Header["Sec-Websocket-Protocol"], "and no token")
		assert.Empty(t, req.Header["Authorization"])
		http.Error(w, "want WebSocket", http.StatusBadRequest)
	})
	server := &httptest.Server{Listener: l,
		Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			*requests = append(*requests, req.Method+" "+req.URL.Path)
			mux.ServeHTTP(w, req)
		})}}
	server.Start()
	t.Cleanup(server.Close)
	return path, requests
}

// ask makes a request from this machine with the token, after the change.
func ask(t *testing.T, h http.Handler, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
	req.Host, req.RemoteAddr = "127.0.0.1:8088", "127.0.0.1:40000"
	req.Header.Set("Authorization", "Bearer "+token)
	if change != nil {
		change(req)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}

func TestWhoIsAnswered(t *testing.T) {
	path, requests := socket(t, mixed())
	h := newHandler(newAgent(path), token)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, tt := range map[string]struct {
		path   string
		change func(*http.Request)
		code   int
	}{
		"the page without the token":      {"/", header("Authorization", ""), 200},
		"a script without the token":      {"/app.js", header("Authorization", ""), 200},
		"no token":                        {"/api/pods", func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"wrong token":                     {"/api/pods", header("Authorization", "Bearer THETOKEM"), 401},
		"beginning of the token":          {"/api/pods", header("Authorization", "Bearer THE"), 401},
		"empty token":                     {"/api/pods", header("Authorization", "Bearer "), 401},
		"another scheme":                  {"/api/pods", header("Authorization", token), 401},
		"token in the query":              {"/api/pods?token=" + token, header("Authorization", ""), 401},
		"logs without the token":          {"/api/pods/u1/logs/b", header("Authorization", ""), 401},
		"history without the token":       {"/api/pods/u1/history", header("Authorization", ""), 401},
		"YAML without the token":          {"/api/pods/u1/yaml", header("Authorization", ""), 401},
		"usage without the token":         {"/api/usage", header("Authorization", ""), 401},
		"the node without the token":      {"/api/node", header("Authorization", ""), 401},
		"images without the token":        {"/api/images", header("Authorization", ""), 401},
		"a pod without the token":         {"/api/pods/u1", header("Authorization", ""), 401},
		"a name that resolves to us":      {"/", func(r *http.Request) { r.Host = "evil.example:8088" }, 403},
		"a name that begins as ours":      {"/api/pods", func(r *http.Request) { r.Host = "localhost.evil.example" }, 403},
		"no name":                         {"/api/pods", func(r *http.Request) { r.Host = "" }, 403},
		"a peer elsewhere":                {"/api/pods", func(r *http.Request) { r.RemoteAddr = "192.0.2.1:40000" }, 403},
		"a peer without an address":       {"/api/pods", func(r *http.Request) { r.RemoteAddr = "@" }, 403},
		"POST":                            {"/api/pods", func(r *http.Request) { r.Method = "POST" }, 405},
		"OPTIONS, which CORS begins with": {"/api/pods", func(r *http.Request) { r.Method = "OPTIONS" }, 405},
		"another path of the socket":      {"/stop", nil, 404},
		"a path above":                    {"/api/pods/u1/logs/..%2f..%2fstop", nil, 502},
	} {
		rec := ask(t, h, tt.path, tt.change)
		assert.Equal(t, tt.code, rec.Code, name)
		assert.Equal(t, policy, rec.Header().Get("Content-Security-Policy"), name)
		assert.Equal(t, "nosniff", rec.Header().Get("X-Content-Type-Options"), name)
		assert.Equal(t, "no-store", rec.Header().Get("Cache-Control"), name)
		assert.Empty(t, rec.Header().Values("Access-Control-Allow-Origin"), name)
		assert.Empty(t, rec.Header().Values("Set-Cookie"), name)
	}
	for _, r := range *requests {
		assert.Regexp(t, "^GET /(pods|gone|containerLogs/default/web-n1/u1/.*)$", r, "what reaches the agent")
	}
	for _, host := range []string{"localhost:8088", "localhost", "[::1]:8088", "127.0.0.1"} {
		assert.Equal(t, 200, ask(t, h, "/api/pods", func(r *http.Request) { r.Host = host }).Code, host)
	}
}

func TestData(t *testing.T) {
	path, _ := socket(t, mixed())
	h := newHandler(newAgent(path), token)
	h.now = func() time.Time { return podtest.Noon }
	decode := func(path string, value any) {
		t.Helper()
		rec := ask(t, h, path, nil)
		require.Equal(t, 200, rec.Code, rec.Body)
		assert.Contains(t, rec.Header().Get("Content-Type"), "json")
		assert.NotContains(t, rec.Body.String(), "<", "JSON that is taken for HTML has no tags")
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), value))
	}
	var l list
	decode("/api/pods", &l)
	require.Len(t, l.Pods, 1)
	assert.Equal(t, "Not running: container a waits: ErrImagePull: "+hostile, l.Pods[0].Why)
	assert.Equal(t, bad, l.Pods[0].Tone)
	assert.Equal(t, "old", l.Gone[0].Name)
	assert.Equal(t, []control.Problem{{Path: "/m", Error: hostile}}, l.Problems)
	var d details
	decode("/api/pods/u1", &d)
	assert.Len(t, d.Containers, 4)
	assert.Equal(t, containerView{Name: "a", State: "ErrImagePull", Tone: bad, Message: hostile}, d.Containers[2])
	decode("/api/pods/u2", &d)
	assert.Equal(t, "Not running: it is gone from the node since 2026-01-02T12:00:00Z", d.Why)
	var u usageView
	decode("/api/usage", &u)
	assert.Equal(t,
		usageView{Pods: map[types.UID]usagePoint{"u1": {At: podtest.Noon, Cores: new(0.25), Bytes: new(uint64(4096))}}},
		u)
	decode("/api/usage?pod=u1", &u)
	assert.Equal(t, map[string]usagePoint{"b": {At: podtest.Noon, Bytes: new(uint64(2048))}}, u.Containers)
	assert.Contains(t, ask(t, h, "/api/pods/u1/yaml", nil).Body.String(), "\n  name: web-n1\n")
	assert.Equal(t, 404, ask(t, h, "/api/pods/u3/yaml", nil).Code)
	var e entryView
	decode("/api/pods/u1/history", &e)
	assert.Equal(t, "Container a exited with code 3: "+hostile, e.Text)
	assert.Equal(t, bad, e.Tone)

	tag := ask(t, h, "/api/pods", nil).Header().Get("ETag")
	rec := ask(t, h, "/api/pods", func(r *http.Request) { r.Header.Set("If-None-Match", tag) })
	assert.Equal(t, 304, rec.Code, "nothing has changed")
	assert.Empty(t, rec.Body.String())
	rec = ask(t, h, "/api/pods", func(r *http.Request) { r.Header.Set("If-None-Match", `"other"`) })
	assert.Equal(t, 200, rec.Code)

	rec = ask(t, h, "/api/pods/u1/logs/b", nil)
	assert.Equal(t, "text/plain; charset=utf-8", rec.Header().Get("Content-Type"))
	assert.Equal(t, "follow=true&restarts=true&tailLines=500 "+hostile+"\n", rec.Body.String())
	for query, want := range map[string]string{
		"previous=true":                   "previous=true&tailLines=500",
		"timestamps=true&all=1&follow=no": "follow=true&restarts=true&tailLines=500&timestamps=true",
		"all=true&previous=true":          "previous=true",
		"all=true&limitBytes=1&stream=x":  "",
	} {
		assert.Equal(t, want+" "+hostile+"\n", ask(t, h, "/api/pods/u1/logs/b?"+query, nil).Body.String(), query)
	}
	rec = ask(t, h, "/api/pods/u1/logs/a", nil)
	assert.Equal(t, 502, rec.Code)
	assert.Equal(t, "container is waiting to start\n", rec.Body.String())
	assert.Equal(t, 404, ask(t, h, "/api/pods/u3", nil).Code)
	assert.Equal(t, 404, ask(t, h, "/api/pods/u3/logs/b", nil).Code)
	rec = ask(t, newHandler(newAgent(path+"not"), token), "/api/pods", nil)
	assert.Equal(t, 503, rec.Code)
	assert.Contains(t, rec.Body.String(), "is it running")
}

// A list says why pods wait; the events of pods that do not wait are not read.
func TestWhyPodsWait(t *testing.T) {
	path, requests := socket(t, podtest.Pod(v1.PodRunning, podtest.Running("a", true), podtest.Running("b", false)))
	rec := ask(t, newHandler(newAgent(path), token), "/api/pods", nil)
	var l list
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &l))
	assert.Equal(t, "Running, but not ready: b: Readiness probe failed: 503", l.Pods[0].Why)
	assert.Equal(t, map[string]string{"app": "web"}, l.Pods[0].Labels)
	assert.Contains(t, *requests, "GET /events/")

	path, requests = socket(t, podtest.Pod(v1.PodRunning, podtest.Waiting("a", "ErrImagePull", "")))
	ask(t, newHandler(newAgent(path), token), "/api/pods", nil)
	assert.NotContains(t, *requests, "GET /events/")
}

// The page refers to nothing elsewhere, and has no way to insert HTML.
func TestPage(t *testing.T) {
	entries, err := web.ReadDir("web")
	require.NoError(t, err)
	assert.Len(t, entries, len(files))
	lines := 0
	for name := range files {
		data, err := web.ReadFile("web/" + name)
		require.NoError(t, err)
		lines += bytes.Count(data, []byte("\n"))
		text := strings.ReplaceAll(string(data), "http://www.w3.org/2000/svg", "") // a name, not an address
		assert.NotRegexp(t,
			regexp.MustCompile(
				`https?:|//[a-z]+\.|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc|DOMParser|@import|url\(|style=|\son[a-z]+=`), text, name)
	}
	assert.Less(t, lines, 1500, "it is small enough to be read")
}

func TestCommand(t *testing.T) {
	path, _ := socket(t, mixed())
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, path, 0, allowed{}, out)
		_ = out.Close()
	}()
	buf := make([]byte, 4096)
	n, err := in.Read(buf)
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, in) }()
	address, _, _ := strings.Cut(string(buf[:n]), "\n")
	found := regexp.MustCompile(`^(http://127\.0\.0\.1:\d+)/#([A-Z2-7]{26})$`).FindStringSubmatch(address)
	require.NotNil(t, found, address)
	req, err := http.NewRequestWithContext(ctx, "GET", found[1]+"/api/pods", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+found[2])
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 200, resp.StatusCode)
	cancel()
	require.NoError(t, <-ended)

	cmd := Command(program, io.Discard)
	cmd.SetArgs([]string{"--root-dir", t.TempDir()})
	require.ErrorIs(t, cmd.ExecuteContext(t.Context()), control.ErrNoAgent)
	cmd.SetArgs([]string{"web"})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "unexpected argument")
}
