package server_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/server"
)

// logDir is a directory of logs, beside which is a secret.
func logDir(t *testing.T) string {
	top := t.TempDir()
	writeFile(t, filepath.Join(top, "secret"), []byte("hush"))
	dir := filepath.Join(top, "log")
	for name, text := range map[string]string{
		"syslog": "a system log\n", "pods/p/0.log": "of a pod\n", "kubelet.log": "of a service\n", "web/web.log": "of another\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		writeFile(t, filepath.Join(dir, name), []byte(text))
	}
	require.NoError(t, os.Symlink("../secret", filepath.Join(dir, "out")))
	require.NoError(t, os.Symlink(filepath.Join(top, "secret"), filepath.Join(dir, "absolute")))
	require.NoError(t, os.Symlink("syslog", filepath.Join(dir, "in")))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "containers"), 0o755))
	for name, to := range map[string]string{"main.log": "pods/p/0.log", "out.log": "../secret", "outer.log": "out",
		"twice.log": "containers/main.log"} {
		require.NoError(t, os.Symlink(dir+"/"+to, filepath.Join(dir, "containers", name)))
	}
	require.NoError(t, os.Symlink("..", filepath.Join(dir, "up")))
	return dir
}

func TestNodeLogs(t *testing.T) {
	dir := logDir(t)
	h := server.NodeLogs(server.NodeLogsOptions{Dir: dir})
	for _, tt := range []struct {
		path string
		code int
		want string // a part
	}{
		{"/logs/", 200, `<a href="syslog">`},
		{"/logs/syslog", 200, "a system log\n"},
		{"/logs/in", 200, "a system log\n"},
		{"/logs/pods/p/0.log", 200, "of a pod\n"},
		{"/logs/pods", 301, ""},
		{"/logs/missing", 404, "404"},
		{"/logs/../secret", 404, "404"},
		{"/logs/pods/../../secret", 404, "404"},
		{"/logs/..%2fsecret", 404, "404"},
		{"/logs//etc/passwd", 404, "404"},
		{"/logs/out", 404, "404"},
		{"/logs/absolute", 404, "404"},
		{"/logs/up/secret", 404, "404"},
		{"/logs/containers/main.log", 200, "of a pod\n"}, // as kubelet makes it
		{"/logs/containers/out.log", 404, "404"},
		{"/logs/containers/outer.log", 404, "404"},
		{"/logs/containers/twice.log", 404, "404"},
		{"/logs/?query=kubelet", 200, `<a href="syslog">`}, // queries are off
	} {
		code, body := get(t, h, tt.path)
		assert.Equal(t, tt.code, code, tt.path)
		assert.Contains(t, body, tt.want, tt.path)
		assert.NotContains(t, body, "hush")
	}
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, "/logs/syslog", nil)
	req.Header.Set("Range", "bytes=2-7")
	h.ServeHTTP(rec, req)
	assert.Equal(t, "system", rec.Body.String())
	code, _ := get(t, server.NodeLogs(server.NodeLogsOptions{Dir: filepath.Join(dir, "missing")}), "/logs/syslog")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Equal(t, http.StatusMethodNotAllowed,
		first(get(t, server.Kubelet(agent{}, server.Options{}), "/logs/syslog")))
}

func first(code int, _ string) int { return code }

func TestNodeLogQuery(t *testing.T) {
	dir := logDir(t)
	var args []string
	h := server.NodeLogs(server.NodeLogsOptions{Dir: dir, Query: true, Journal: func(_ context.Context, a []string,
		w io.Writer) error {
		if a[0] == "--field" {
			fmt.Fprint(w, "containerd.service\nbroken.service\n")
			return nil
		}
		args = a
		if strings.Contains(strings.Join(a, " "), "broken") {
			return errors.New("no such program")
		}
		fmt.Fprint(w, "from the journal\n")
		return nil
	}})
	for _, tt := range []struct {
		query string
		code  int
		want  string // a part
	}{
		{"query=containerd", 200, "from the journal\n"},
		{"query=broken", 200, "\nerror: journal output not available\n"},
		{"query=kubelet", 200, "of a service\n"},
		{"query=syslog", 200, "a system log\n"},
		{"query=web", 200, "of another\n"},
		{"query=missing", 200, "\nlog not found for missing\n"},
		{"query=out", 200, "\nlog not found for out\n"},
		{"query=containerd&query=kubelet", 200, "from the journal\nof a service\n"},
		{"query=kubelet&tailLines=3", 200, "options present and query resolved to log files for [kubelet]\ntry without specifying options\n"},
		{"query=/syslog", 406, "path escapes from parent"},
		{"query=./syslog", 200, "a system log\n"},
		{"query=pods/p/0.log", 200, "of a pod\n"},
		{"query=../secret", 406, "path escapes from parent"},
		{"query=up/secret", 406, "path escapes from parent"},
		{"query=pods/x", 406, "no such file"},
		{"query=", 400, "may not be empty"},
		{"query=%20&query=", 400, "may not be empty"},
		{"tailLines=3", 406, "query: Required value: cannot be empty with options"},
		{"query=a&query=pods/x", 406, "cannot specify a file and service"},
		{"query=pods/x&query=pods/y", 406, "cannot specify more than one file"},
		{"query=pods/p/0.log&boot=0", 406, "cannot specify file with options"},
		{"query=a%3Bb", 406, "input contains unsupported characters"},
		{"query=" + strings.Repeat("a", 257), 406, "length must be less than 256"},
		{"query=a&query=b&query=c&query=d&query=e", 406, "must have at most 4 items"},
		{"query=a&sinceTime=yesterday", 400, "invalid time format"},
		{"query=a&untilTime=x", 400, "invalid time format"},
		{"query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z", 406, "must be after `sinceTime`"},
		{"query=a&boot=x", 400, "invalid syntax"},
		{"query=a&boot=1", 406, "must be less than 1"},
		{"query=a&tailLines=x", 400, "invalid syntax"},
		{"query=a&tailLines=100001", 406, "must be between 0 and 100000, inclusive"},
		{"query=a&pattern=(", 406, "missing closing )"},
	} {
		code, body := get(t, h, "/logs/?"+tt.query)
		assert.Equal(t, tt.code, code, tt.query)
		assert.Contains(t, body, tt.want, tt.query)
		assert.NotContains(t, body, "hush")
	}
	code, body := get(t, h, "/logs/syslog?query=a")
	assert.Equal(t, http.StatusNotAcceptable, code)
	assert.Equal(t, "path not allowed in query mode\n", body)
	_, body = get(t, h, "/logs/syslog")
	assert.Equal(t, "a system log\n", body)

	_, _ = get(t, h,
		"/logs/?query=containerd&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-03T03:04:05%2B02:00&boot=-1&tailLines=7&pattern=x+y")
	assert.Equal(t, []string{
		"--utc", "--no-pager", "--output=short-precise", "--since=2026-01-02 03:04:05 UTC",
		"--until=2026-01-03 01:04:05 UTC", "--pager-end", "--lines=7",
		"--unit=containerd", "--grep=x y", "--boot", "-1",
	}, args)
}

// The times of a query are absolute, wherever the node is. The journal has a line for each hour of a
// day, at half past, in UTC. It was made with systemd-journal-remote.
func TestJournalOfANodeElsewhere(t *testing.T) {
	if _, err := exec.LookPath("journalctl"); err != nil {
		t.Skip("no journalctl here: ", err)
	}
	packed, err := os.Open("testdata/hours.journal.gz")
	require.NoError(t, err)
	defer func() { _ = packed.Close() }()
	data, err := gzip.NewReader(packed)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "hours.journal")
	journal, err := os.Create(file)
	require.NoError(t, err)
	_, err = io.Copy(journal, data)
	require.NoError(t, errors.Join(err, journal.Close()))
	h := server.NodeLogs(server.NodeLogsOptions{Dir: t.TempDir(), Query: true,
		Journal: func(ctx context.Context, args []string, w io.Writer) error {
			cmd := exec.CommandContext(ctx, "journalctl", append([]string{"--file=" + file}, args...)...)
			cmd.Env = append(os.Environ(), "TZ=EST5EDT")
			cmd.Stdout, cmd.Stderr = w, w
			return cmd.Run()
		}})
	for query, want := range map[string]string{
		"&sinceTime=2026-01-02T03:00:00Z&untilTime=2026-01-02T05:00:00Z":                 "3 4",
		"&sinceTime=2026-01-02T03:00:00%2B02:00&untilTime=2026-01-01T22:00:00-05:00":     "1 2",
		"&sinceTime=2026-01-02T22:00:00Z":                                                "22 23",
		"&untilTime=2026-01-02T02:00:00Z":                                                "0 1",
		"&sinceTime=2026-01-02T10:30:00Z&untilTime=2026-01-02T11:30:00Z&pattern=hour.11": "11",
		"&tailLines=2": "22 23",
	} {
		code, body := get(t, h, "/logs/?query=kubelet"+query)
		require.Equal(t, http.StatusOK, code)
		var hours []string
		for _, line := range strings.Split(strings.TrimSpace(body), "\n") {
			_, hour, _ := strings.Cut(line, "line of hour ")
			hours = append(hours, hour)
		}
		assert.Equal(t, want, strings.Join(hours, " "), "%s: %s", query, body)
	}
}

func TestNoJournal(t *testing.T) {
	if _, err := exec.LookPath("journalctl"); err == nil {
		t.Skip("this machine has journalctl")
	}
	_, body := get(t, server.NodeLogs(server.NodeLogsOptions{Dir: logDir(t), Query: true}), "/logs/?query=kubelet")
	assert.Equal(t, "of a service\n", body)
}

func FuzzNodeLogs(f *testing.F) {
	f.Add("pods/../../secret", "query=up/secret&boot=-1")
	f.Fuzz(func(t *testing.T, path, query string) {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.URL.Path, req.URL.RawQuery = "/logs/"+path, query
		rec := httptest.NewRecorder()
		h := server.NodeLogs(server.NodeLogsOptions{Dir: logDir(t), Query: true,
			Journal: func(context.Context, []string, io.Writer) error { return nil }})
		h.ServeHTTP(rec, req)
		if strings.Contains(rec.Body.String(), "hush") {
			t.Fatalf("%q %q: it leads out of the directory", path, query)
		}
	})
}
