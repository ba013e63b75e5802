package auth

import (
	"net/http"
	"strings"
)

// Verb returns the verb of the API that stands for a request, by its HTTP method and the path of its
// URL. For other methods than GET, POST, PUT, PATCH and DELETE, such as HEAD, it is "", which only
// rules for all verbs allow.
//
// To run something in a container, or to connect to one, is always "create". With kubelet a GET
// needs "get", and since a WebSocket begins with a GET, clients that may only read nodes/proxy can
// run commands there.
func Verb(method, path string) string {
	for _, sessions := range []string{"/exec", "/attach", "/portForward", "/run"} {
		if below(path, sessions) {
			return "create"
		}
	}
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	default:
		return ""
	}
}

// below reports whether a path is the parent or below it.
func below(path, parent string) bool {
	rest, ok := strings.CutPrefix(path, parent)
	return ok && (rest == "" || rest[0] == '/')
}

// subresources are the subresources of nodes by path, as kubelet has them. A path stands for all
// below it too. (GetRequestAttributes in pkg/kubelet/server/auth.go, KEP-2862.)
var subresources = []struct { // never changed
	path string
	// first is enough on its own, and so is then.
	first, then string
}{
	{"/allocatedPods", "pods", "proxy"},
	{"/pods", "pods", "proxy"},
	{"/healthz", "healthz", "proxy"},
	{"/configz", "configz", "proxy"},
	{"/runningpods", "pods", "proxy"},
	{"/stats", "stats", ""},
	{"/metrics", "metrics", ""},
	{"/logs", "log", ""},
	{"/checkpoint", "checkpoint", ""},
	{"/statusz", "statusz", ""},
	{"/flagz", "configz", ""},
}

// Subresources returns the subresources of nodes of which a client needs one, to request the path
// of a URL: for example pods or proxy for /pods, log for /logs/messages. All paths that have none
// of their own need proxy: logs of containers, commands in containers, profiles.
func Subresources(path string) []string {
	for _, s := range subresources {
		if !below(path, s.path) {
			continue
		}
		if s.then == "" {
			return []string{s.first}
		}
		return []string{s.first, s.then}
	}
	return []string{"proxy"}
}
