package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/server"
)

// requestLog keeps what is measured.
type requestLog struct{ lines []string }

func (l *requestLog) RequestBegan(method, path string, readOnly, longRunning bool) func() {
	l.lines = append(l.lines, fmt.Sprintf("%s %s %t %t", method, path, readOnly, longRunning))
	return func() { l.lines = append(l.lines, "ended") }
}

func (l *requestLog) WebSocketSession(subresource string) {
	l.lines = append(l.lines, "session "+subresource)
}

// A stranger chooses the method and the path of a request, but not the labels of a metric.
func TestMeasured(t *testing.T) {
	for request, want := range map[string]string{
		"GET /pods": "GET pods", "GET /pods/": "GET pods", "GET /runningpods/": "GET runningpods", "POST /exec/default/web/main": "POST exec", "GET /portForward/default/web": "GET portForward",
		"GET /metrics": "GET metrics", "GET /metrics/": "GET metrics", "GET /metrics/cadvisor": "GET metrics/cadvisor", "GET /metrics/probes": "GET metrics/probes",
		"GET /metrics/stranger": "GET other", "STRANGE /": "other other", "GET /stranger/a": "GET other", "PATCH /logs/x": "other logs", "GET /debug/pprof/heap": "GET debug", "GET /": "GET other",
	} {
		t.Run(request, func(t *testing.T) {
			var method, path string
			_, _ = fmt.Sscan(request, &method, &path)
			m, begun := &requestLog{}, 0
			h := server.Measured(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { begun = len(m.lines) }), m,
				false)
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, nil))
			assert.Equal(t, 1, begun)
			long := map[string]bool{"POST exec": true, "GET portForward": true, "GET debug": true}[want]
			assert.Equal(t, []string{fmt.Sprintf("%s false %t", want, long), "ended"}, m.lines)
		})
	}
	m := &requestLog{}
	h := server.Measured(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), m,
		true)
	assert.Panics(t, func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pods", nil))
	})
	assert.Equal(t, []string{"GET pods true false", "ended"}, m.lines)
}

// Sessions by WebSocket are counted as in kubelet: those of its newest protocol.
func TestSessionsByWebSocket(t *testing.T) {
	m, opts := &requestLog{}, allOptions()
	opts.Requests = m
	opts.Streams = http.NotFoundHandler()
	h := kubelet(t, opts)
	ask := func(path string, protocols ...string) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		req.Header["Sec-Websocket-Protocol"] = protocols
		if protocols != nil {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "websocket")
		}
		h.ServeHTTP(httptest.NewRecorder(), req)
	}
	ask("/exec/default/web/main")
	ask("/exec/default/web/main", "v4.channel.k8s.io")
	ask("/portForward/default/web", "v4.channel.k8s.io")
	assert.Empty(t, m.lines)
	ask("/exec/default/web/main", "v4.channel.k8s.io, v5.channel.k8s.io")
	ask("/attach/default/web/main", "v5.channel.k8s.io")
	ask("/portForward/default/web", "SPDY/3.1+portforward.k8s.io")
	assert.Equal(t, []string{"session exec", "session attach", "session portforward"}, m.lines)
}
