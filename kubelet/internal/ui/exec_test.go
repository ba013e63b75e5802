package ui

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
)

// Commands are executed only where that is allowed, with the token, and each is in the audit log before it begins. (A
// session is in the end-to-end test of the page.)
func TestExec(t *testing.T) {
	path, requests := socket(t, podtest.Pod(v1.PodRunning, podtest.Running("a", true),
		podtest.Waiting("b", "ErrImagePull", "")))
	h := newHandler(newAgent(path), token)
	h.now = func() time.Time { return podtest.Noon }
	const exec = "/api/pods/u1/exec/a?command=sh&command=-l"
	local := func(r *http.Request) { r.RemoteAddr = "127.0.0.1:0" }
	assert.Equal(t, 404, ask(t, h, exec, local).Code, "without the permission")
	assert.Equal(t, 404, ask(t, h, "/xterm/xterm.mjs", nil).Code)
	assert.NotContains(t, ask(t, h, "/api/pods/u1", nil).Body.String(), `"exec":true`)

	var audit strings.Builder
	h.allowExec(&audit)
	protocols := func(text string) func(*http.Request) {
		return func(r *http.Request) {
			local(r)
			r.Header.Del("Authorization")
			r.Header.Set("Sec-WebSocket-Protocol", text)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
		}
	}
	offer := func(token string) string {
		return execProtocol + ", " + tokenProtocol + base64.RawURLEncoding.EncodeToString([]byte(token))
	}
	for path, tt := range map[string]struct {
		change func(*http.Request)
		code   int
	}{
		exec + "&1": {protocols(execProtocol), 401}, exec + "&2": {protocols(offer("THETOKEM")), 401},
		exec + "&3":                           {protocols(offer("")), 401},
		exec + "&4":                           {protocols(tokenProtocol + "?"), 401},
		exec + "&5":                           {func(r *http.Request) { protocols(offer(token))(r); r.Host = "evil.example" }, 403},
		exec:                                  {post, 405},
		exec + "&6":                           {local, 400},
		"/api/pods/u1/exec/a":                 {protocols(offer(token)), 400},
		"/api/pods/u1/exec/a?command=":        {protocols(offer(token)), 400},
		"/api/pods/u1/exec/b?command=sh":      {protocols(offer(token)), 400},
		"/api/pods/u1/exec/nobody?command=sh": {protocols(offer(token)), 400},
		"/api/pods/u2/exec/a?gone":            {local, 404}, "/api/pods/u3/exec/a?none": {local, 404},
	} {
		assert.Equal(t, tt.code, ask(t, h, path, tt.change).Code, path)
	}
	assert.Empty(t, audit.String())
	for _, r := range *requests {
		assert.NotContains(t, r, "/exec/")
	}
	assert.Equal(t, 1, strings.Count(ask(t, h, "/api/pods/u1", nil).Body.String(), `"exec":true`), "in what runs")
	assert.NotContains(t, ask(t, h, "/api/pods/u1", nil).Body.String(), `"restart":true`)
	assert.Equal(t, 200, ask(t, h, "/xterm/xterm.mjs", nil).Code)
	answer := ask(t, h, exec, protocols(offer(token)))
	assert.Equal(t, 400, answer.Code)
	assert.Equal(t, `2026-01-02T12:00:00Z exec of ["sh" "-l"] in container "a" of pod default/web-n1 by the page, user unknown `+
		"from 127.0.0.1:0\n"+`2026-01-02T12:00:00Z the exec has not begun: "want WebSocket\n"`+"\n", audit.String())
}
