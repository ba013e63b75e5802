package ui

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
)

// post makes a request of a port that no socket of this machine has.
func post(r *http.Request) { r.Method, r.RemoteAddr = http.MethodPost, "127.0.0.1:0" }

// Containers are restarted only where that is allowed, and each restart is in the audit log before it begins.
func TestRestart(t *testing.T) {
	path, requests := socket(t, podtest.Pod(v1.PodRunning, podtest.Running("a", true), podtest.Waiting("b", "ErrImagePull", "")))
	h := newHandler(newAgent(path), token)
	h.now = func() time.Time { return podtest.Noon }
	const restart = "/api/pods/u1/restart?container=a"
	assert.Equal(t, 405, ask(t, h, restart, post).Code, "without the permission")
	assert.NotContains(t, ask(t, h, "/api/pods/u1", nil).Body.String(), `"restart":true`)

	var audit strings.Builder
	h.allowRestart(&audit)
	without := func(r *http.Request) { post(r); r.Header.Del("Authorization") }
	elsewhere := func(r *http.Request) { post(r); r.Host = "evil.example" }
	for path, tt := range map[string]struct {
		change func(*http.Request)
		code   int
	}{
		restart + "&1": {without, 401}, restart + "&2": {elsewhere, 403}, restart: {nil, 405},
		"/api/pods": {post, 405}, "/api/pods/u3/restart": {post, 404}, "/api/pods/u2/restart?container=a": {post, 404},
		"/api/pods/u1/restart?container=x": {post, 502},
	} {
		assert.Equal(t, tt.code, ask(t, h, path, tt.change).Code, path)
	}
	assert.Empty(t, audit.String())
	for _, r := range *requests {
		assert.NotContains(t, r, "POST")
	}
	assert.Equal(t, 1, strings.Count(ask(t, h, "/api/pods/u1", nil).Body.String(), `"restart":true`), "of what runs")
	assert.Equal(t, 200, ask(t, h, restart, post).Code)
	assert.Contains(t, *requests, "POST /restart/u1")
	assert.Equal(t, `2026-01-02T12:00:00Z restart of ["a"] in pod default/web-n1 by the page, user unknown from `+
		"127.0.0.1:0\n", audit.String())
}

func TestOwnerOfSocket(t *testing.T) {
	const table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F98 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12\n" +
		"   1: 0100007F:9C40 0100007F:1F99 01 00000000:00000000 00:00000000 00000000  1003        0 13\n" +
		"   2: 0100007F:9C40 0100007F:1F98 06 00000000:00000000 00:00000000 00000000     0        0 0\n" +
		"   3: 0100007F:9C40 0100007F:1F98 01 00000000:00000000 00:00000000 00000000  1001        0 14\n" +
		"   4: 0100007F:9C41 0100007F:1F98 01 00000000:00000000 00:00000000 00000000  1002        0 15\n"
	here := netip.MustParseAddrPort("127.0.0.1:8088")
	uid, ok := ownerOf(table, netip.MustParseAddrPort("127.0.0.1:40000"), here)
	assert.True(t, ok)
	assert.Equal(t, 1001, uid, "not that of the connection to another server, nor of one that has ended")
	uid, ok = ownerOf(table, netip.MustParseAddrPort("[::ffff:127.0.0.1]:40001"), here)
	assert.True(t, ok)
	assert.Equal(t, 1002, uid)
	for _, other := range []string{"127.0.0.1:1", "[::1]:40000", "127.0.0.2:40000", "127.0.0.1:8088"} {
		_, ok = ownerOf(table, netip.MustParseAddrPort(other), here)
		assert.False(t, ok, other)
	}
	assert.Equal(t, "unknown", peerOf(&http.Request{RemoteAddr: "@"}))
}
