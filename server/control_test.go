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
	// watchers receive a value with each change of seen.
	watchers []chan struct{}
	exec     func(ctx context.Context, id runtime.ContainerID, cmd []string) (runtime.ExecResult, error)
}

func newNode(t testing.TB) *node {
	closesAll(t)
	return &node{dir: t.TempDir(), pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyOnFailure, InitContainers: []v1.Container{{Name: "setup"}},
			Containers: []v1.Container{{Name: "main"}},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}}
}

func (*node) Healthy() error                       { return nil }
func (*node) Terminating() []*v1.Pod               { return nil }
func (*node) TranslateUID(uid types.UID) types.UID { return uid }

func (n *node) Pods() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pod == nil {
		return nil
	}
	return []*v1.Pod{n.pod.DeepCopy()}
}

func (n *node) Pod(uid types.UID) (*v1.Pod, bool) { return podOf(n.Pods(), uid) }

// podOf returns the pod of the UID.
func podOf(pods []*v1.Pod, uid types.UID) (*v1.Pod, bool) {
	if i := slices.IndexFunc(pods, func(pod *v1.Pod) bool { return pod.UID == uid }); i >= 0 {
		return pods[i], true
	}
	return nil, false
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

func (n *node) Exec(ctx context.Context, id runtime.ContainerID, cmd []string,
	_ time.Duration) (runtime.ExecResult, error) {
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
	status := n.statusOf(container)
	status.LastTerminationState, status.State = status.State, v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	status.ContainerID = c.ID.String()
	n.changed()
	return c.LogPath
}

// statusOf returns the API status of a container. The caller holds mu.
func (n *node) statusOf(container string) *v1.ContainerStatus {
	list := &n.pod.Status.ContainerStatuses
	for i := range *list {
		if (*list)[i].Name == container {
			return &(*list)[i]
		}
	}
	*list = append(*list, v1.ContainerStatus{Name: container})
	return &(*list)[len(*list)-1]
}

// exit ends the newest instance.
func (n *node) exit(code int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &n.seen.Containers[0]
	c.State, c.ExitCode = runtime.ContainerExited, code
	n.statusOf(c.Name).State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: c.ID.String()}}
	n.changed()
}

// WatchRuntimeStatus implements [server.Agent].
func (n *node) WatchRuntimeStatus(types.UID) (<-chan struct{}, func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := make(chan struct{}, 1)
	n.watchers = append(n.watchers, w)
	return w, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.watchers = slices.DeleteFunc(n.watchers, func(o chan struct{}) bool { return o == w })
	}
}

// changed wakes the watchers. The caller holds mu.
func (n *node) changed() {
	for _, w := range n.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
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
	go func() { served <- server.Serve(ctx, l, server.Control(n, server.Options{})) }()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(func() { cancel(); require.NoError(t, <-served) })
	return &http.Client{Transport: tr}
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
	server.Control(n, server.Options{}).ServeHTTP(rec,
		httptest.NewRequest(http.MethodGet, "/run/default/web/main?cmd=x", nil))
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
