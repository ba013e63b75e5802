package server

import (
	"net/http"
	"strings"

	"github.com/kubeletkit/kubeletkit/internal/subprotocol"
)

// RequestMetrics receives what is measured of the requests to a port. The arguments of its methods
// have few values, so that they can be labels. The methods must not block, and are safe for concurrent
// use. A *prommetrics.Requests implements it.
type RequestMetrics interface {
	// RequestBegan is called before a request is handled. It returns what is called after it.
	RequestBegan(method, path string, readOnly, longRunning bool) (ended func())
	// WebSocketSession is called for each request for exec, attach or portforward by a WebSocket as
	// kubectl opens it, if the client may do so.
	WebSocketSession(subresource string)
}

// other stands for methods and paths that have no value of their own.
const other = "other"

// Measured returns a handler that reports the requests to h. Put it before a guard, so that
// requests that are refused are measured, too. readOnly means the port without authentication.
func Measured(h http.Handler, m RequestMetrics, readOnly bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path := measuredPath(req.URL.Path)
		defer m.RequestBegan(measuredMethod(req.Method), path, readOnly, isLongRunning(path))()
		h.ServeHTTP(w, req)
	})
}

// measuredMethod returns the method if kubelet has a value for it.
func measuredMethod(method string) string {
	switch method {
	case http.MethodOptions, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete,
		http.MethodTrace, http.MethodConnect:
		return method
	}
	return other
}

// measuredPath returns the first element of the path if kubelet has a value for it, of the pages of
// metrics both elements.
func measuredPath(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "metrics":
		second, _, _ := strings.Cut(rest, "/")
		switch second {
		case "":
			return first
		case "cadvisor", "probes", "resource":
			return first + "/" + second
		}
	case "healthz", "pods", "stats", "run", "exec", "attach", "portForward", "containerLogs", "configz", "runningpods",
		"allocatedPods", "checkpoint", "logs", "debug", "flagz", "statusz":
		return first
	}
	return other
}

// isLongRunning reports whether requests of the path last as long as the client wants. In kubelet
// those of portForward count as short, because its table has another spelling.
func isLongRunning(path string) bool {
	switch path {
	case "exec", "attach", "portForward", "debug":
		return true
	}
	return false
}

// sessions returns a handler of streams that reports sessions by WebSocket.
func sessions(h http.Handler, m RequestMetrics) http.Handler {
	if m == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path := measuredPath(req.URL.Path)
		protocol := subprotocol.V5
		if path == "portForward" {
			protocol = subprotocol.Tunnel
		}
		if subprotocol.IsOffered(req, protocol) {
			m.WebSocketSession(strings.ToLower(path))
		}
		h.ServeHTTP(w, req)
	})
}
