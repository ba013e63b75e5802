package auth_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/server/auth"
)

// The table is that of KEP-2862 and of GetRequestAttributes in pkg/kubelet/server/auth.go.
func TestSubresources(t *testing.T) {
	for path, want := range map[string][]string{
		"/pods":                {"pods", "proxy"},
		"/pods/":               {"pods", "proxy"},
		"/podsandmore":         {"proxy"},
		"/allocatedPods":       {"pods", "proxy"},
		"/allocatedPods/a/b":   {"pods", "proxy"},
		"/runningpods":         {"pods", "proxy"},
		"/runningpods/":        {"pods", "proxy"},
		"/healthz":             {"healthz", "proxy"},
		"/healthz/syncloop":    {"healthz", "proxy"},
		"/configz":             {"configz", "proxy"},
		"/flagz":               {"configz"},
		"/statusz":             {"statusz"},
		"/stats":               {"stats"},
		"/stats/summary":       {"stats"},
		"/statsd":              {"proxy"},
		"/metrics":             {"metrics"},
		"/metrics/slis":        {"metrics"},
		"/metrics/cadvisor":    {"metrics"},
		"/logs/":               {"log"},
		"/logs/messages":       {"log"},
		"/checkpoint/a/b/c":    {"checkpoint"},
		"/containerLogs/a/b/c": {"proxy"},
		"/exec/a/b/c":          {"proxy"},
		"/attach/a/b/c":        {"proxy"},
		"/portForward/a/b":     {"proxy"},
		"/run/a/b/c":           {"proxy"},
		"/debug/pprof/heap":    {"proxy"},
		"/debug/flags/v":       {"proxy"},
		"/debug/history/a/b":   {"proxy"},
		"/":                    {"proxy"},
		"":                     {"proxy"},
		"/PODS":                {"proxy"},
		"//pods":               {"proxy"},
		"/exec/../pods":        {"proxy"},
		"*":                    {"proxy"},
		"/metricsz":            {"proxy"},
		"/unknown":             {"proxy"},
	} {
		assert.Equal(t, want, auth.Subresources(path), path)
	}
}

func TestVerb(t *testing.T) {
	for method, want := range map[string]string{
		"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "HEAD": "", "OPTIONS": "", "CONNECT": "", "get": "",
	} {
		assert.Equal(t, want, auth.Verb(method, "/containerLogs/a/b/c"), method)
	}
}

// A WebSocket begins with a GET: who may only read must not run commands by one.
func TestVerbOfSessions(t *testing.T) {
	for _, path := range []string{"/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/run/a/b/c", "/run",
		"/exec/a/b/uid/c"} {
		for _, method := range []string{"GET", "POST", "HEAD", "PUT"} {
			assert.Equal(t, "create", auth.Verb(method, path), "%s %s", method, path)
		}
	}
	assert.Equal(t, "get", auth.Verb("GET", "/runningpods/"))
}
