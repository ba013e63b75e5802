package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
)

type checkpointer func(id runtime.ContainerID, path string, timeout time.Duration) error

func (c checkpointer) CheckpointContainer(_ context.Context, id runtime.ContainerID, path string,
	timeout time.Duration) error {
	return c(id, path, timeout)
}

func TestCheckpoint(t *testing.T) {
	n := newNode(t)
	dir := filepath.Join(n.dir, "checkpoints")
	var got string
	var took time.Duration
	var fails error
	rt := checkpointer(func(id runtime.ContainerID, path string, timeout time.Duration) error {
		got, took = path, timeout
		assert.Equal(t, "t://0", id.String())
		return fails
	})
	h := server.Kubelet(n, server.Options{Checkpoint: server.Checkpoint(n, rt, dir)})
	post := func(path string) (int, string) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, path, nil))
		return rec.Code, rec.Body.String()
	}
	for _, tt := range []struct {
		path string
		code int
		want string
	}{
		{"/checkpoint/default/other/main", 404, "pod does not exist"},
		{"/checkpoint/default/web/other", 404, "container other does not exist"},
		{"/checkpoint/default/web/main?timeout=x", 404, "cannot parse value of timeout parameter"},
		{"/checkpoint/default/web/main", 500, "checkpointing of default/web/main failed (container main not found)"},
	} {
		code, body := post(tt.path)
		assert.Equal(t, tt.code, code, tt.path)
		assert.Equal(t, tt.want, body, tt.path)
	}
	n.start("main")
	code, body := post("/checkpoint/default/web/main?timeout=1&timeout=90")
	require.Equal(t, http.StatusOK, code, body)
	var answer struct{ Items []string }
	require.NoError(t, json.Unmarshal([]byte(body), &answer))
	assert.Equal(t, []string{got}, answer.Items)
	assert.True(t, strings.HasPrefix(got, filepath.Join(dir, "checkpoint-web_default-main-")), got)
	assert.Equal(t, 90*time.Second, took)
	assert.DirExists(t, dir)

	fails = errors.New("no CRIU")
	code, body = post("/checkpoint/default/web/main")
	assert.Equal(t, http.StatusInternalServerError, code)
	assert.Equal(t, "checkpointing of default/web/main failed (no CRIU)", body)
	for _, timeout := range []string{"-1", "-9223372036854775808"} {
		code, body = post("/checkpoint/default/web/main?timeout=" + timeout)
		assert.Equal(t, http.StatusInternalServerError, code)
		assert.Contains(t, body, "requires the timeout value to be > 0", timeout)
	}
	code, _ = get(t, server.Kubelet(n, server.Options{}), "/checkpoint/default/web/main")
	assert.Equal(t, http.StatusNotFound, code)
}

// A container has one checkpoint at a time, each has a file of its own, and a failed one leaves none.
func TestCheckpointsDoNotShareFiles(t *testing.T) {
	n := newNode(t)
	n.pod.Spec.Containers = append(n.pod.Spec.Containers, v1.Container{Name: "other"})
	n.start("main")
	n.start("other")
	dir := filepath.Join(n.dir, "checkpoints")
	began, finish := make(chan string), make(chan error)
	rt := checkpointer(func(_ runtime.ContainerID, path string, _ time.Duration) error {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		began <- path
		return <-finish
	})
	h := server.Kubelet(n, server.Options{Checkpoint: server.Checkpoint(n, rt, dir)})
	post := func(container string) (int, string) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/checkpoint/default/web/"+container, nil))
		return rec.Code, rec.Body.String()
	}
	codes := make(chan int)
	start := func(container string) string {
		go func() {
			code, _ := post(container)
			codes <- code
		}()
		return <-began
	}
	for range 3 { // in one second
		start("main")
		start("other")
		for range 10 {
			code, body := post("main")
			assert.Equal(t, http.StatusInternalServerError, code)
			assert.Equal(t,
				"checkpointing of default/web/main failed (another checkpoint of the container is under way)", body)
		}
		finish <- nil
		finish <- nil
		assert.Equal(t, http.StatusOK, <-codes)
		assert.Equal(t, http.StatusOK, <-codes)
	}
	path := start("main")
	assert.FileExists(t, path)
	finish <- errors.New("no space left on device")
	assert.Equal(t, http.StatusInternalServerError, <-codes)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, files, 6)
}

// Names of the request do not reach the path; those of the pod do. A timeout has a bound.
func TestCheckpointOfOddRequests(t *testing.T) {
	n := newNode(t)
	n.start("main")
	rt := checkpointer(func(_ runtime.ContainerID, path string, timeout time.Duration) error {
		assert.Equal(t, n.dir, filepath.Dir(path))
		assert.LessOrEqual(t, timeout, 24*time.Hour)
		return nil
	})
	h := server.Kubelet(n, server.Options{Checkpoint: server.Checkpoint(n, rt, n.dir)})
	for path, want := range map[string]int{
		"/default/web/main?timeout=9223372036854775807": 200,
		"/default/web/main?timeout=9223372036854775808": 404,
		"/default/web/main?timeout=-1":                  500,
		"/default/web/main?timeout=1e3":                 404,
		"/default/web/main?timeout=%00":                 404,
		"/default/web/main%00":                          404,
		"/default/web/..%2Fmain":                        404,
		"/default/web/main%2F..%2Fmain":                 404,
		"/default/web/%FF%0A%1B":                        404,
		"/default/..%2Fdefault%2Fweb/main":              404,
	} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/checkpoint"+path, nil))
		assert.Equal(t, want, rec.Code, path)
		assert.NotEqual(t, "text/html", rec.Header().Get("Content-Type"))
	}
}

type line string

func (l line) String() string { return string(l) }

func TestHistory(t *testing.T) {
	n := newNode(t)
	histories := server.Histories[line]{Entries: func(uid types.UID) []line {
		return map[types.UID][]line{"u1": {"one", "two"}, "u0": {"zero"}}[uid]
	}}
	h := server.Kubelet(n, server.Options{History: server.History(n, histories)})
	code, body := get(t, h, "/debug/history/default/web")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "one\ntwo\n", body)
	_, body = get(t, h, "/debug/history/default/web/u1?output=json")
	assert.JSONEq(t, `["one","two"]`, body)
	for _, path := range []string{"/debug/history/default/web/u2", "/debug/history/default/old",
		"/debug/history/other/web"} {
		code, body = get(t, h, path)
		assert.Equal(t, http.StatusNotFound, code, path)
		assert.Contains(t, body, "does not exist")
	}
	histories.Gone = func(namespace, name string) (types.UID,
		bool) {
		return "u0", namespace == "default" && name == "old"
	}
	h = server.Kubelet(n, server.Options{History: server.History(n, histories)})
	_, body = get(t, h, "/debug/history/default/old")
	assert.Equal(t, "zero\n", body)
	code, _ = get(t, h, "/debug/history/default/old/u5")
	assert.Equal(t, http.StatusNotFound, code)
	histories.Entries = func(types.UID) []line { return nil }
	_, body = get(t, server.Kubelet(n, server.Options{History: server.History(n, histories)}),
		"/debug/history/default/web?output=json")
	assert.Equal(t, "[]\n", body)
}
