package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
)

type checkpointer func(id runtime.ContainerID, path string, timeout time.Duration) error

func (c checkpointer) CheckpointContainer(_ context.Context, id runtime.ContainerID, path string, timeout time.Duration) error {
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
	h := server.Kubelet(n, n, server.Options{Checkpoint: server.Checkpoint(n, n, rt, dir)})
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
	code, _ = get(t, server.Kubelet(n, n, server.Options{}), "/checkpoint/default/web/main")
	assert.Equal(t, http.StatusNotFound, code)
}

type line string

func (l line) String() string { return string(l) }

func TestHistory(t *testing.T) {
	n := newNode(t)
	histories := server.Histories[line]{Entries: func(uid types.UID) []line {
		return map[types.UID][]line{"u1": {"one", "two"}, "u0": {"zero"}}[uid]
	}}
	h := server.Kubelet(n, n, server.Options{History: server.History(n, histories)})
	code, body := get(t, h, "/debug/history/default/web")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "one\ntwo\n", body)
	_, body = get(t, h, "/debug/history/default/web/u1?output=json")
	assert.JSONEq(t, `["one","two"]`, body)
	for _, path := range []string{"/debug/history/default/web/u2", "/debug/history/default/old", "/debug/history/other/web"} {
		code, body = get(t, h, path)
		assert.Equal(t, http.StatusNotFound, code, path)
		assert.Contains(t, body, "does not exist")
	}
	histories.Gone = func(namespace, name string) (types.UID, bool) { return "u0", namespace == "default" && name == "old" }
	h = server.Kubelet(n, n, server.Options{History: server.History(n, histories)})
	_, body = get(t, h, "/debug/history/default/old")
	assert.Equal(t, "zero\n", body)
	code, _ = get(t, h, "/debug/history/default/old/u5")
	assert.Equal(t, http.StatusNotFound, code)
	histories.Entries = func(types.UID) []line { return nil }
	_, body = get(t, server.Kubelet(n, n, server.Options{History: server.History(n, histories)}), "/debug/history/default/web?output=json")
	assert.Equal(t, "[]\n", body)
}
