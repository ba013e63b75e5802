package kubelet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ask makes a request at a port with TLS as a user who may do everything. It waits until the port
// is open.
func ask(t *testing.T, port int, method, path, body string) (code int, answer string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	require.Eventually(t, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("https://127.0.0.1:%d%s", port, path),
			strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer boss-token")
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		code, answer = resp.StatusCode, string(data)
		return true
	}, time.Minute, 10*time.Millisecond)
	return code, answer
}

// withPort returns flags for a port for [ask].
func withPort(t *testing.T, port int) []string {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	write(t, tokens, "boss-token,boss,1,system:masters\n")
	return []string{"--address=127.0.0.1", fmt.Sprintf("--port=%d", port), "--token-auth-file", tokens}
}

// configz returns what is in effect.
func configz(t *testing.T, port int) map[string]any {
	t.Helper()
	code, body := ask(t, port, http.MethodGet, "/configz", "")
	require.Equal(t, http.StatusOK, code, body)
	var page struct{ Kubeletconfig map[string]any }
	require.NoError(t, json.Unmarshal([]byte(body), &page))
	return page.Kubeletconfig
}

// The cgroup driver of the runtime wins over that of the settings.
func TestConfigzHasTheDriverOfTheRuntime(t *testing.T) {
	b := newBench(t)
	port := freePort(t)
	b.start(append(withPort(t, port), "--cgroup-driver=systemd")...)
	require.Eventually(t, func() bool { return configz(t, port)["cgroupDriver"] == "cgroupfs" }, time.Minute,
		10*time.Millisecond, "the first check of the runtime")
	assert.Equal(t, true, configz(t, port)["cgroupsPerQOS"])
}

// A PUT to /debug/flags/v changes the verbosity of the log from then on, and the one in /configz.
func TestVerbosityOfARunningAgent(t *testing.T) {
	b := newBench(t)
	logs, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer func() { _ = logs.Close() }()
	port := freePort(t)
	s, err := program.Parse(slices.Concat(withPort(t, port), ownDirs(b.root),
		[]string{"--root-dir", b.root, "--pod-manifest-path", b.manifests,
			"--file-check-frequency=20ms", "--healthz-port=0", "--hostname-override=n", "--container-runtime-endpoint",
			b.endpoint, "--show=none", "-v=2"}))
	require.NoError(t, err)
	opts := testOptions(nil)
	opts.process.err = logs
	k, err := New(t.Context(), &Config{s, opts})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	logged := func(pod string) bool { // at level 4, when it is new
		data, err := os.ReadFile(logs.Name())
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, "Pod updated") && strings.Contains(line, pod) &&
				strings.Contains(line, "type=create") {
				return true
			}
		}
		return false
	}
	b.put("before", "i")
	b.await("before-n 1/1 Running", "pods")
	assert.Equal(t, map[string]any{"format": "text", "verbosity": 2.0}, configz(t, port)["logging"])

	code, body := ask(t, port, http.MethodPut, "/debug/flags/v", "4")
	assert.Equal(t, http.StatusOK, code, body)
	assert.Equal(t, "successfully set klog.logging.verbosity to 4", body)
	assert.Equal(t, map[string]any{"format": "text", "verbosity": 4.0}, configz(t, port)["logging"])
	_, body = ask(t, port, http.MethodGet, "/flagz", "")
	assert.Contains(t, body, "\nv=2\n", "the flag that was given")
	b.put("after", "i")
	b.await("after-n 1/1 Running", "pods")
	assert.True(t, logged("after-n"))
	assert.False(t, logged("before-n"))

	_, _ = ask(t, port, http.MethodPut, "/debug/flags/v", "0")
	b.put("last", "i")
	b.await("last-n 1/1 Running", "pods")
	assert.False(t, logged("last-n"))
	code, _ = ask(t, port, http.MethodPut, "/debug/flags/v", "-1")
	assert.Equal(t, http.StatusBadRequest, code)
	cancel()
	require.NoError(t, <-done)
}
