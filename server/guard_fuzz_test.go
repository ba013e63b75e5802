package server_test

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/auth"
)

// what a request has reached.
type reached struct{ things []string }

func (r *reached) note(thing string) {
	if !slices.Contains(r.things, thing) {
		r.things = append(r.things, thing)
	}
}

func (*reached) Terminating() []*v1.Pod                                 { return nil }
func (*reached) WatchRuntimeStatus(types.UID) (<-chan struct{}, func()) { return nil, func() {} }

func (*reached) TranslateUID(uid types.UID) types.UID { return uid }

// Pods, Healthy, RuntimeStatus and Exec make it an agent and its containers.
func (r *reached) Pods() []*v1.Pod {
	r.note("pods")
	return nil
}

func (r *reached) Pod(types.UID) (*v1.Pod, bool) {
	r.note("pods")
	return nil, false
}

func (r *reached) Healthy() error {
	r.note("healthz")
	return nil
}

func (r *reached) RuntimeStatus(types.UID) (*runtime.PodStatus, bool) {
	r.note("containers")
	return nil, false
}

func (r *reached) Exec(context.Context, runtime.ContainerID, []string, time.Duration) (runtime.ExecResult, error) {
	r.note("containers")
	return runtime.ExecResult{}, nil
}

func (r *reached) page(thing string) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { r.note(thing) })
}

func (r *reached) Summary(context.Context, bool) ([]byte, error) {
	r.note("stats")
	return []byte("{}"), nil
}

func (r *reached) options() server.Options {
	return server.Options{
		Metrics: r.page("metrics"), ProbeMetrics: r.page("metrics"), SLIMetrics: r.page("metrics"),
		ResourceMetrics: r.page("metrics"), CadvisorMetrics: r.page("metrics"),
		Profiles: r.page("profiles"), Version: "v1", Stats: r.Summary, Streams: r.page("streams"), Logs: r.page("logs"),
		Checkpoint: r.page("checkpoint"), History: r.page("history"),
		RunningPods:  func(context.Context) ([]*runtime.Pod, error) { r.note("runningpods"); return nil, nil },
		Config:       func() (any, error) { r.note("configz"); return nil, nil },
		Flags:        func() map[string]string { r.note("flagz"); return nil },
		SetVerbosity: func(string) error { r.note("verbosity"); return nil },
	}
}

// mayReach are the subresources of which one lets a client reach something, as KEP-2862 and the
// kubelet have it.
var mayReach = map[string][]string{
	"pods": {"pods", "proxy"}, "runningpods": {"pods", "proxy"}, "healthz": {"healthz", "proxy"}, "configz": {"configz", "proxy"}, "flagz": {"configz"},
	"metrics": {"metrics"}, "containers": {"proxy"}, "profiles": {"proxy"}, "verbosity": {"proxy"},
	"stats": {"stats"}, "streams": {"proxy"}, "logs": {"log"}, "checkpoint": {"checkpoint"}, "history": {"proxy"},
}

// only allows one subresource, and keeps for what it was asked.
type only struct {
	subresource string
	asked       []authorizationv1.ResourceAttributes
}

func (o *only) Authorize(_ context.Context, _ *authenticationv1.UserInfo,
	what *authorizationv1.ResourceAttributes) (bool, error) {
	o.asked = append(o.asked, *what)
	return what.Subresource == o.subresource, nil
}

// kubeletSubresources is the decision of kubelet, in its own order.
func kubeletSubresources(path string) (out []string) {
	below := func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
	switch {
	case below("/pods"), below("/runningpods"):
		out = append(out, "pods")
	case below("/healthz"):
		out = append(out, "healthz")
	case below("/configz"):
		out = append(out, "configz")
	}
	switch {
	case below("/stats"):
		return append(out, "stats")
	case below("/metrics"):
		return append(out, "metrics")
	case below("/logs"):
		return append(out, "log")
	case below("/checkpoint"):
		return append(out, "checkpoint")
	case below("/statusz"):
		return append(out, "statusz")
	case below("/flagz"):
		return append(out, "configz")
	default:
		return append(out, "proxy")
	}
}

var kubeletVerbs = map[string]string{"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch",
	"DELETE": "delete"}

// wantVerb is the verb of kubelet, but for sessions in containers, which are always created.
func wantVerb(method, path string) string {
	switch first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); {
	case !strings.HasPrefix(path, "/"):
	case first == "exec", first == "attach", first == "portForward", first == "run":
		return "create"
	}
	return kubeletVerbs[method]
}

// Each request is authorized with the attributes that kubelet would use, but for [wantVerb], and
// reaches only what they stand for. Without permission it reaches nothing, and the answer does not depend on what
// there is.
func FuzzAuthorization(f *testing.F) {
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT",
		"TRACE", "get", "X"} {
		for _, path := range []string{
			"/", "/pods", "/pods/", "/pods/../run/default/web/main?cmd=id", "/pods%2f..%2frun/default/web/main",
			"/healthz/../run/a/b/c", "//run/a/b/c", "/healthz", "/healthz/syncloop",
			"/metrics", "/metrics/probes", "/metrics/slis", "/metrics/../configz", "/metrics/%2e%2e/configz",
			"/configz", "/flagz", "/statusz", "/runningpods/", "/runningpods", "/containerLogs/a/b/c",
			"/run/a/b/c", "/run/a/b/u/c",
			"/debug/pprof/heap", "/debug/flags/v", "/logs/", "/logs/..%2f..%2fetc/passwd", "/stats/summary",
			"/exec/a/b/c", "/./pods", "/Pods", "*", "http://other/run/a/b/c", "/run;/a", "/metrics;/../run/a/b/c",
			"/attach/a/b/c", "/portForward/a/b", "/exec/../logs/x", "/logs/../exec/a/b/c", "/logs/%2e%2e/exec/a/b/c",
			"/checkpoint/a/b/c", "/checkpoint/../exec/a/b/c", "/metrics/resource", "/metrics/cadvisor",
			"/stats", "/stats/",
			"/stats/../debug/history/a/b", "/stats/summary/../../pods", "/debug/history/a/b", "/debug/history/a/b/u",
			"/debug/pprof/../history/a/b", "/logs", "/logs?query=kubelet", "/checkpoint", "/statusz/../run/a/b/c",
		} {
			f.Add([]byte(method + " " + path + " HTTP/1.1\r\nHost: node\r\nContent-Length: 1\r\n\r\n4"))
		}
	}
	subresources := []string{"", "pods", "healthz", "configz", "stats", "metrics", "log", "checkpoint", "statusz",
		"proxy"}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, allowed := &reached{}, &only{}
		guard, err := auth.New(auth.Options{NodeName: "node", Anonymous: true, Authorizer: allowed})
		require.NoError(t, err)
		h := guard.Protect(server.Kubelet(r, r.options()))
		for _, subresource := range subresources {
			req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
			if err != nil {
				return
			}
			r.things, allowed.subresource, allowed.asked = nil, subresource, nil
			method, path := req.Method, req.URL.Path // before the handler may change them
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, req.WithContext(t.Context()))

			want := kubeletSubresources(path)
			for i, asked := range allowed.asked {
				assert.Equal(t, authorizationv1.ResourceAttributes{Verb: wantVerb(method, path), Version: "v1",
					Resource: "nodes", Subresource: want[i], Name: "node"}, asked)
			}
			if !slices.Contains(want, subresource) {
				assert.Len(t, allowed.asked, len(want))
				assert.Equal(t, http.StatusForbidden, rec.Code)
				assert.Empty(t, r.things, "%s %s reached something", method, path)
				continue
			}
			for _, thing := range r.things {
				assert.Contains(t, mayReach[thing], subresource, "%s %s reached %s", method, path, thing)
			}
		}
	})
}

// The requests of [FuzzAuthorization] can reach each handler.
func TestEverythingIsReached(t *testing.T) {
	r := &reached{}
	h := server.Kubelet(r, r.options())
	for request, thing := range map[string]string{
		"GET /pods": "pods", "GET /runningpods": "runningpods", "GET /healthz": "healthz", "GET /configz": "configz", "GET /flagz": "flagz", "GET /metrics": "metrics", "GET /metrics/resource": "metrics",
		"GET /metrics/cadvisor": "metrics", "GET /metrics/slis": "metrics", "GET /debug/pprof/heap": "profiles", "PUT /debug/flags/v": "verbosity", "GET /stats/summary": "stats", "POST /exec/a/b/c": "streams",
		"POST /attach/a/b/c": "streams", "GET /portForward/a/b": "streams", "GET /logs/": "logs", "POST /checkpoint/a/b/c": "checkpoint", "GET /debug/history/a/b": "history", "GET /containerLogs/a/b/c": "pods", "POST /run/a/b/c": "pods",
	} {
		method, path, _ := strings.Cut(request, " ")
		r.things = nil
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, nil))
		assert.Equal(t, []string{thing}, r.things, request)
		assert.NotEmpty(t, mayReach[thing])
	}
}

// A client that is not known, or has no permission, gets the same answer for what is there and
// for what is not.
func TestAnswersRevealNothing(t *testing.T) {
	n := newNode(t)
	guard := func(anonymous bool) http.Handler {
		g, err := auth.New(auth.Options{NodeName: "node", Anonymous: anonymous, Authorizer: &only{}})
		require.NoError(t, err)
		return g.Protect(server.Kubelet(n, server.Options{}))
	}
	for _, anonymous := range []bool{false, true} {
		for _, paths := range [][]string{
			{"/containerLogs/default/web/main", "/containerLogs/default/web/other", "/containerLogs/default/none/main", "/containerLogs/x", "/unknown", "/debug/pprof/heap"},
			{"/exec/default/web/main", "/exec/default/none/main", "/exec", "/attach/default/web/main", "/portForward/default/web", "/run/x"},
			{"/pods", "/pods/", "/pods/unknown"}, {"/metrics", "/metrics/probes", "/metrics/unknown"}, {"/logs/", "/logs/messages", "/logs/none"},
		} {
			var first *httptest.ResponseRecorder
			for _, path := range paths {
				rec := httptest.NewRecorder()
				guard(anonymous).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
				if first == nil {
					first = rec
				}
				assert.Equal(t, first.Code, rec.Code, path)
				assert.Equal(t, first.Body.String(), rec.Body.String(), path)
				assert.Equal(t, first.Header(), rec.Header(), path)
			}
		}
	}
}
