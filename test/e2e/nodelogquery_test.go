package e2e

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// journalOfTest returns the variables of an environment in which journalctl reads a journal of the
// tests. It has a line of kubelet for each hour of 2026-01-02, at half past, in UTC.
func journalOfTest(t *testing.T) []string {
	t.Helper()
	Need(t, "journalctl")
	journalctl, err := exec.LookPath("journalctl")
	require.NoError(t, err)
	packed, err := os.Open("../../server/testdata/hours.journal.gz")
	require.NoError(t, err)
	defer packed.Close()
	data, err := gzip.NewReader(packed)
	require.NoError(t, err)
	dir := t.TempDir()
	journal, err := os.Create(filepath.Join(dir, "hours.journal"))
	require.NoError(t, err)
	_, err = io.Copy(journal, data)
	require.NoError(t, errors.Join(err, journal.Close()))
	script := fmt.Sprintf("#!/bin/sh\nexec %s --file=%s \"$@\"\n", journalctl, journal.Name())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "journalctl"), []byte(script), 0o755))
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "TZ=EST5EDT"}
}

// TestNodeLogQuery reads the journal of a node (KEP-2258) through the port with TLS.
func TestNodeLogQuery(t *testing.T) {
	t.Parallel()
	env := journalOfTest(t)
	s := newStandalone(t, func(config map[string]any) *Agent {
		config["enableSystemLogQuery"] = true
		return StartProcessAgent(t, AgentOptions{Config: config, Env: env})
	})
	get := func(query string) (int, string) {
		t.Helper()
		code, body, err := (&clientOfPort{base: s.base, http: s.http}).request(http.MethodGet, "/logs/?"+query)
		require.NoError(t, err)
		return code, body
	}
	for _, tt := range []struct{ query, hours string }{
		{"&sinceTime=2026-01-02T03:00:00Z&untilTime=2026-01-02T05:00:00Z", "3 4"},
		{"&sinceTime=2026-01-02T03:00:00%2B02:00&untilTime=2026-01-01T22:00:00-05:00", "1 2"},
		{"&sinceTime=2026-01-02T10:30:00Z&untilTime=2026-01-02T11:30:00Z&pattern=hour.11", "11"},
		{"&tailLines=2", "22 23"},
		{"&tailLines=1&pattern=" + url.QueryEscape("hour 1[0-5]$"), "15"},
		{"&sinceTime=2026-01-03T00:00:00Z", ""},
		{"&boot=0&tailLines=1", "23"},
	} {
		code, body := get("query=kubelet" + tt.query)
		assert.Equal(t, http.StatusOK, code, "%s: %s", tt.query, body)
		var hours []string
		for line := range strings.Lines(body) {
			if _, hour, ok := strings.Cut(strings.TrimSpace(line), "line of hour "); ok {
				hours = append(hours, hour)
			}
		}
		assert.Equal(t, tt.hours, strings.Join(hours, " "), "%s: %s", tt.query, body)
	}
	_, all := get("query=kubelet")
	_, again := get("query=kubelet&query=kubelet")
	assert.NotEmpty(t, all)
	assert.Equal(t, all, again)
	for _, tt := range []struct {
		query string
		code  int
		text  string
	}{
		{"query=no-such-service-here", http.StatusOK, "log not found for no-such-service-here"},
		{"query=kubelet&query=no-such-service-here&tailLines=1", http.StatusOK, "options present and query resolved to log files for [no-such-service-here]"},
		{"query=../../etc/passwd", http.StatusNotAcceptable, "path escapes from parent"},
		{"query=kubelet%3Bid", http.StatusNotAcceptable, "input contains unsupported characters"},
		{"query=--version", http.StatusOK, "log not found for --version"},
		{"query=kubelet&boot=1", http.StatusNotAcceptable, "must be less than 1"},
		{"query=kubelet&sinceTime=yesterday", http.StatusBadRequest, "invalid time format"},
	} {
		code, body := get(tt.query)
		assert.Equal(t, tt.code, code, "%s: %s", tt.query, body)
		assert.Contains(t, body, tt.text, tt.query)
	}
}
