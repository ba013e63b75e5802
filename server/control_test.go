package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
)

// node is an agent with one pod, "default/web", of which the containers are what
// the test says.
type node struct {
	dir string

	mu   sync.Mutex
	pod  *v1.Pod // nil when it is gone
	seen runtime.PodStatus
	exec func(ctx context.Context, id runtime.ContainerID, cmd []string) (runtime.ExecResult, error)
}

func newNode(t *testing.T) *node {
	return &node{dir: t.TempDir(), pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyOnFailure, InitContainers: []v1.Container{{Name: "setup"}}, Containers: []v1.Container{{Name: "main"}},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}}
}

func (n *node) Healthy() error { return nil }

func (n *node) Pods() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pod == nil {
		return nil
	}
	return []*v1.Pod{n.pod.DeepCopy()}
}

func (n *node) RuntimeStatus(uid types.UID) (*runtime.PodStatus, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if uid != "u1" || len(n.seen.Containers) == 0 {
		return nil, false
	}
	s := n.seen
	s.Containers = slices.Clone(s.Containers)
	return &s, true
}

func (n *node) Exec(ctx context.Context, id runtime.ContainerID, cmd []string, _ time.Duration) (runtime.ExecResult, error) {
	return n.exec(ctx, id, cmd)
}

// start makes the next instance of a container run, and returns the path of its log.
func (n *node) start(container string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := len(n.seen.Containers)
	c := runtime.ContainerStatus{LogPath: filepath.Join(n.dir, fmt.Sprintf("%s-%d.log", container, i))}
	c.ID, c.Name, c.State = runtime.ContainerID{Type: "t", ID: fmt.Sprint(i)}, container, runtime.ContainerRunning
	c.CreatedAt = time.Unix(int64(i), 0)
	n.seen.Containers = slices.Insert(n.seen.Containers, 0, c)
	return c.LogPath
}

// exit ends the newest instance.
func (n *node) exit(code int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &n.seen.Containers[0]
	c.State, c.ExitCode = runtime.ContainerExited, code
	n.pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: c.Name, LastTerminationState: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ContainerID: c.ID.String()}}}}
}

func (n *node) remove() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pod = nil
}

func (n *node) serve(t *testing.T) *http.Client {
	path := filepath.Join(n.dir, "s")
	l, err := server.ListenUnix(t.Context(), path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l, server.Control(n, n, server.Options{})) }()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(func() { cancel(); require.NoError(t, <-served) })
	return &http.Client{Transport: tr}
}

func appendLog(t *testing.T, path string, lines ...string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	for _, l := range lines {
		_, err = f.WriteString("2026-01-02T03:04:05.000000006Z stdout " + l + "\n")
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
}

// terminating is a node whose pod is not desired any more and has not been forgotten.
type terminating struct{ *node }

func (terminating) Pods() []*v1.Pod          { return nil }
func (n terminating) Terminating() []*v1.Pod { return n.node.Pods() }

func TestLogsOfAPodThatIsBeingRemoved(t *testing.T) {
	n := newNode(t)
	appendLog(t, n.start("main"), "F one")
	h := server.Control(terminating{n}, n, server.Options{})
	for path, want := range map[string]int{
		"/containerLogs/default/web/main": http.StatusOK, "/containerLogs/default/web/u1/main": http.StatusOK, "/containerLogs/default/web/u2/main": http.StatusNotFound,
	} {
		code, body := get(t, h, path)
		assert.Equal(t, want, code, path)
		assert.Equal(t, want == http.StatusOK, body == "one\n", body)
	}
}

func TestLogs(t *testing.T) {
	n := newNode(t)
	h := server.Control(n, n, server.Options{})
	const path = "/containerLogs/default/web/main"

	code, body := get(t, h, path)
	assert.Equal(t, http.StatusBadRequest, code)
	assert.Contains(t, body, `container "main" in pod "web" is waiting to start`)

	waiting := n.pod.Status
	n.pod.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "no room"}
	_, body = get(t, h, path)
	assert.Contains(t, body, `container "main" in pod "web" was not started: the pod has failed: OutOfcpu: no room`)
	n.pod.Status = waiting

	log := n.start("main")
	code, body = get(t, h, path)
	assert.Equal(t, http.StatusInternalServerError, code)
	assert.Contains(t, body, "opening the log of container \"main\" in pod \"web\"")
	appendLog(t, log, "F one", "P tw", "F o", "F three")

	for _, tt := range []struct {
		query string
		code  int
		want  string
	}{
		{"", 200, "one\ntwo\nthree\n"},
		{"?tailLines=1", 200, "three\n"},
		{"?tailLines=0&stream=All", 200, ""},
		{"?timestamps=true&tailLines=3", 200, "2026-01-02T03:04:05.000000006Z two\n2026-01-02T03:04:05.000000006Z three\n"},
		{"?tailLines=-1", 400, "tailLines=-1: must not be negative\n"},
		{"?follow=please", 400, "follow=please: strconv.ParseBool: parsing \"please\": invalid syntax\n"},
		{"?stream=Stdout", 400, "stream=Stdout: only All is supported\n"},
		{"?sinceSeconds=3", 400, "sinceSeconds=3: not supported\n"},
		{"?previous=1", 400, "previous terminated container \"main\" in pod \"web\" not found\n"},
	} {
		code, body = get(t, h, path+tt.query)
		assert.Equal(t, tt.code, code, tt.query)
		assert.Equal(t, tt.want, body, tt.query)
	}

	n.exit(1)
	appendLog(t, n.start("main"), "F second")
	_, body = get(t, h, path)
	assert.Equal(t, "second\n", body)
	_, body = get(t, h, path+"?previous=true&tailLines=1")
	assert.Equal(t, "three\n", body)

	for path, want := range map[string]string{
		"/containerLogs/default/other/main": `pod "other" does not exist`,
		"/containerLogs/other/web/main":     `pod "web" does not exist`,
		"/containerLogs/default/web/other":  `container "other" not found in pod "web"`,
	} {
		code, body = get(t, h, path)
		assert.Equal(t, http.StatusNotFound, code)
		assert.Equal(t, want, body)
	}
	code, _ = get(t, server.Handler(n, server.Options{}), path)
	assert.Equal(t, http.StatusMethodNotAllowed, code, "the read-only API has no logs")
	code, body = get(t, h, "/healthz")
	assert.Equal(t, http.StatusOK, code, body)
}

// reader reads an answer as it comes.
type reader struct {
	t    *testing.T
	body io.ReadCloser
}

func (r reader) expect(want string) {
	r.t.Helper()
	got := make([]byte, len(want))
	_, err := io.ReadFull(r.body, got)
	require.NoError(r.t, err, "%s", got)
	require.Equal(r.t, want, string(got))
}

func (r reader) expectEnd() {
	r.t.Helper()
	rest, err := io.ReadAll(r.body)
	require.NoError(r.t, err)
	require.Empty(r.t, string(rest))
	require.NoError(r.t, r.body.Close())
}

func follow(t *testing.T, c *http.Client, container, query string) reader {
	t.Helper()
	resp, err := c.Get("http://agent/containerLogs/default/web/" + container + "?follow=true" + query)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return reader{t, resp.Body}
}

func TestFollowGoesOnAcrossRotationAndRestarts(t *testing.T) {
	n := newNode(t)
	c := n.serve(t)
	first := n.start("main")
	r := follow(t, c, "main", "&tailLines=1") // the log need not be there yet
	appendLog(t, first, "F one", "F two")
	r.expect("two\n")
	appendLog(t, first, "F three")
	r.expect("three\n")

	require.NoError(t, os.Rename(first, first+".old"))
	appendLog(t, first+".old", "F four")
	appendLog(t, first, "F five")
	r.expect("four\nfive\n")

	n.exit(1)
	appendLog(t, first, "F last words")
	r.expect("last words\n")
	second, third := n.start("main"), ""
	n.exit(2)
	third = n.start("main")
	appendLog(t, second, "F six")
	appendLog(t, third, "F seven")
	r.expect("six\nseven\n")

	n.remove() // its last instance goes on for a while
	appendLog(t, third, "F eight")
	r.expect("eight\n")
	n.mu.Lock()
	n.seen.Containers[0].State = runtime.ContainerExited
	n.mu.Unlock()
	r.expectEnd()
}

func TestFollowEnds(t *testing.T) {
	t.Run("where the container is not restarted", func(t *testing.T) {
		n := newNode(t)
		c := n.serve(t)
		appendLog(t, n.start("setup"), "F ready")
		r := follow(t, c, "setup", "")
		r.expect("ready\n")
		n.exit(0)
		r.expectEnd()
	})
	t.Run("with the pod", func(t *testing.T) {
		n := newNode(t)
		c := n.serve(t)
		appendLog(t, n.start("main"), "F failed")
		n.exit(1)
		r := follow(t, c, "main", "")
		r.expect("failed\n")
		n.mu.Lock()
		n.pod.Status.Phase = v1.PodFailed
		n.mu.Unlock()
		r.expectEnd()
	})
	t.Run("with the end of the instance while the pod is terminating", func(t *testing.T) {
		n := newNode(t)
		c := n.serve(t)
		appendLog(t, n.start("main"), "F one")
		r := follow(t, c, "main", "")
		r.expect("one\n")
		n.mu.Lock()
		n.pod.DeletionTimestamp = new(metav1.Now())
		n.mu.Unlock()
		n.exit(1) // that would be restarted otherwise
		r.expectEnd()
	})
	t.Run("with the client, and with the server", func(t *testing.T) {
		n := newNode(t)
		c := n.serve(t) // whose end is awaited
		appendLog(t, n.start("main"), "F one")
		gone, stays := follow(t, c, "main", ""), follow(t, c, "main", "")
		gone.expect("one\n")
		stays.expect("one\n")
		require.NoError(t, gone.body.Close())
	})
}

// replaced is a node with a pod "default/web" that is terminating, beside its successor of
// the UID u2.
type replaced struct{ *node }

func (n replaced) Pods() []*v1.Pod {
	old := n.node.Pods()[0]
	fresh := old.DeepCopy()
	fresh.UID, fresh.Status = "u2", v1.PodStatus{Phase: v1.PodPending, Reason: "Waits", Message: "for u1"}
	old.DeletionTimestamp = new(metav1.Now())
	return []*v1.Pod{fresh, old}
}

func TestTheUIDDistinguishesPodsOfOneName(t *testing.T) {
	n := replaced{newNode(t)}
	appendLog(t, n.start("main"), "F of the predecessor")
	h := server.Control(n, n, server.Options{})
	code, body := get(t, h, "/containerLogs/default/web/u1/main")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "of the predecessor\n", body)
	const waits = "container \"main\" in pod \"web\" is waiting to start: Waits: for u1\n"
	for _, path := range []string{"/containerLogs/default/web/u2/main", "/containerLogs/default/web/main"} {
		code, body = get(t, h, path)
		assert.Equal(t, http.StatusBadRequest, code)
		assert.Equal(t, waits, body)
	}
	code, body = get(t, h, "/containerLogs/default/web/u3/main")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Equal(t, "pod \"web\" does not exist", body)
}

func TestRun(t *testing.T) {
	n := newNode(t)
	c := n.serve(t)
	run := func(query url.Values) (*http.Response, string) {
		resp, err := c.Post("http://agent/run/default/web/main?"+query.Encode(), "", nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp, string(body)
	}
	resp, body := run(url.Values{"cmd": {"true"}})
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	assert.Contains(t, body, `container "main" in pod "web" does not run: it was not started yet`)

	n.start("main")
	n.exec = func(_ context.Context, id runtime.ContainerID, cmd []string) (runtime.ExecResult, error) {
		return runtime.ExecResult{Output: []byte(id.String() + " " + strings.Join(cmd, "|")), ExitCode: 3}, nil
	}
	for _, tt := range []struct {
		query url.Values
		want  string
	}{
		{url.Values{"cmd": {"echo a b"}}, "t://0 echo|a|b"},
		{url.Values{"command": {"echo", "a b"}}, "t://0 echo|a b"},
	} {
		resp, body = run(tt.query)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "3", resp.Header.Get(server.ExitCodeHeader))
		assert.Equal(t, tt.want, body)
	}
	resp, body = run(nil)
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	assert.Contains(t, body, "no command is given")

	n.exec = func(context.Context, runtime.ContainerID, []string) (runtime.ExecResult, error) {
		return runtime.ExecResult{}, errors.New("no such file")
	}
	resp, body = run(url.Values{"cmd": {"x"}})
	assert.Equal(t, http.StatusInternalServerError, resp.StatusCode)
	assert.Equal(t, "no such file\n", body)

	rec := httptest.NewRecorder()
	server.Control(n, n, server.Options{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/run/default/web/main?cmd=x", nil))
	assert.Equal(t, http.StatusMethodNotAllowed, rec.Code)

	// A client that goes away takes its command along.
	begun, ended := make(chan struct{}), make(chan struct{})
	n.exec = func(ctx context.Context, _ runtime.ContainerID, _ []string) (runtime.ExecResult, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return runtime.ExecResult{}, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/run/default/web/main?cmd=x", nil)
	require.NoError(t, err)
	go func() { <-begun; cancel() }()
	_, err = c.Do(req)
	require.ErrorIs(t, err, context.Canceled)
	<-ended
}

func TestListenUnix(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := server.ListenUnix(t.Context(), path)
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o600, info.Mode())

	_, err = server.ListenUnix(t.Context(), path)
	require.ErrorIs(t, err, server.ErrSocketInUse)
	require.NoError(t, l.Close())
	_, err = os.Lstat(path)
	require.ErrorIs(t, err, os.ErrNotExist)

	// As a killed process leaves it.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	dead.SetUnlinkOnClose(false)
	require.NoError(t, dead.Close())
	require.FileExists(t, path)
	l, err = server.ListenUnix(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, l.Close())

	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = server.ListenUnix(t.Context(), path)
	require.ErrorContains(t, err, "not a socket")
	_, err = server.ListenUnix(t.Context(), filepath.Join(dir, strings.Repeat("x", 120)))
	require.Error(t, err)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, data, 0o600))
}
