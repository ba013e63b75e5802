package profiles_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/server/profiles"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHandler(t *testing.T) {
	h := profiles.Handler()
	get := func(path string) (code int, body string) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		return rec.Code, rec.Body.String()
	}
	for path, want := range map[string]string{
		"/debug/pprof/":                    "Types of profiles available",
		"/debug/pprof/cmdline":             strings.Join(os.Args, "\x00"),
		"/debug/pprof/goroutine?debug=1":   "goroutine profile: total",
		"/debug/pprof/heap?debug=1":        "heap profile: ",
		"/debug/pprof/symbol":              "num_symbols: 1",
		"/debug/pprof/trace?seconds=0.001": "go 1.",
	} {
		code, body := get(path)
		assert.Equal(t, http.StatusOK, code, path)
		assert.Contains(t, body, want, path)
	}
	for _, path := range []string{"/debug/pprof/unknown", "/debug/", "/"} {
		code, _ := get(path)
		assert.Equal(t, http.StatusNotFound, code, path)
	}
}

// A profile of CPU usage ends when its client has left.
func TestProfileWithoutClient(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rec := httptest.NewRecorder()
	profiles.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet,
		"/debug/pprof/profile?seconds=3600", nil))
	assert.Equal(t, http.StatusOK, rec.Code)
}
