package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestJSONLog(t *testing.T) {
	var out bytes.Buffer
	var level slog.LevelVar
	level.Set(-2)
	handler := newJSONHandler(&out, &level)
	log := logr.FromSlogHandler(handler).WithName("pleg")
	line := func() map[string]any {
		t.Helper()
		var got map[string]any
		require.NoError(t, json.Unmarshal(out.Bytes(), &got), out.String())
		out.Reset()
		assert.InDelta(t, float64(time.Now().UnixMilli()), got["ts"], 1e5)
		assert.Regexp(t, `^terminal/formats_test\.go:\d+$`, got["caller"])
		delete(got, "ts")
		delete(got, "caller")
		return got
	}
	log.V(2).Info("Pod changed", "pod", runtime.PodRef{Namespace: "default", Name: "web", UID: "1"},
		"took", time.Second)
	assert.Equal(t, map[string]any{
		"msg": "Pod changed", "v": 2.0, "logger": "pleg", "pod": map[string]any{"namespace": "default", "name": "web", "uid": "1"}, "took": "1s",
	}, line())
	log.Error(errors.New("refused"), "Cannot list")
	assert.Equal(t, map[string]any{"msg": "Cannot list", "err": "refused", "logger": "pleg"}, line())
	slog.New(handler).Warn("Old", "level", "x", "time", "y")
	assert.Contains(t, out.String(), `"level":"warning"`)
	out.Reset()
	log.V(3).Info("too much")
	assert.Empty(t, out.String())
}

func TestModules(t *testing.T) {
	for pattern, want := range map[string]string{
		"formats_test=4": "error info 2 4", "format*=3": "error info 2", "terminal=4": "error info 2 4", "other=4": "error info", "[=4": "error info",
	} {
		var out bytes.Buffer
		var level slog.LevelVar
		name, v, _ := strings.Cut(pattern, "=")
		base := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: &level})
		log := logr.FromSlogHandler(newModular(base, &level, []Module{{name, int(v[0] - '0')}, {"*", 0}})).WithName(
			"n").WithValues("k", "v")
		log.Error(nil, "error")
		log.Info("info")
		log.V(2).Info("2")
		log.V(4).Info("4")
		log.V(5).Info("5")
		var got []string
		for line := range strings.Lines(out.String()) {
			_, msg, _ := strings.Cut(line, "msg=")
			got = append(got, strings.Fields(msg)[0])
			assert.Contains(t, line, "k=v")
		}
		assert.Equal(t, want, strings.Join(got, " "), pattern)
	}
}

func TestDisplayFormats(t *testing.T) {
	d := New(None, nil, nil, os.Getenv)
	d.SetFormat(true, []Module{{"x", 4}})
	require.IsType(t, modular{}, d.Handler())
	d.SetFormat(true, nil)
	require.IsType(t, &slog.JSONHandler{}, d.Handler())
	assert.False(t, d.Interactive())
}
