package terminal

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/slogtest"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// logged returns what the calls write, in the year 2000 of the bubble at midnight UTC.
func logged(t *testing.T, color bool, level slog.Level, calls func(log logr.Logger)) (text string) {
	t.Helper()
	t.Setenv("TZ", "UTC")
	synctest.Test(t, func(*testing.T) {
		var out strings.Builder
		calls(logr.FromSlogHandler(newHandler(&out, level, color)))
		text = strings.ReplaceAll(out.String(), time.Now().Format(time.TimeOnly), "TIME")
	})
	return text
}

func TestShortLines(t *testing.T) {
	pod := runtime.PodRef{Namespace: "default", Name: "web", UID: "0123456789"}
	calls := func(log logr.Logger) {
		log.Info("Agent starts", "node", "n", "rootDir", "/x y")
		log.WithName("cri").WithValues("pod", pod).Error(errors.New(`no "x"`), "Cannot pull", "n", 3)
		log.V(2).Info("Change")
		log.V(4).Info("Detail")
		slog.New(logr.ToSlogHandler(log)).WithGroup("g").Warn("Careful", "empty", "", "after", 3*time.Second,
			slog.Group("h", "k", "a\nb\x1b[2J"))
		log.Info("two\nlines \x1b[2J")
	}
	assert.Equal(t, strings.Join([]string{
		`INFO  TIME Agent starts node=n rootDir="/x y"`,
		"ERROR TIME Cannot pull pod=default/web logger=cri err=`no \"x\"` n=3",
		`V2    TIME Change`,
		`WARN  TIME Careful g.empty="" g.after=3s g.h.k="a\nb\x1b[2J"`,
		`INFO  TIME two lines  [2J`,
		``,
	}, "\n"), logged(t, false, -2, calls))
	assert.NotContains(t, logged(t, false, slog.LevelInfo, calls), "Change")
}

func TestColors(t *testing.T) {
	assert.Equal(t, "\x1b[32mINFO \x1b[0m \x1b[2mTIME\x1b[0m Hello \x1b[2mto=\x1b[0myou\n", logged(t, true, 0,
		func(log logr.Logger) {
			log.Info("Hello", "to", "you")
		}))
	assert.Contains(t, logged(t, true, 0, func(log logr.Logger) { log.Error(nil, "x") }), "\x1b[31mERROR\x1b[0m")
}

func TestWantsColor(t *testing.T) {
	for _, tt := range []struct {
		term, noColor string
		want          bool
	}{{"xterm", "", true}, {"xterm", "1", false}, {"dumb", "", false}} {
		env := map[string]string{"TERM": tt.term, "NO_COLOR": tt.noColor}
		assert.Equal(t, tt.want, WantsColor(func(name string) string { return env[name] }), env)
	}
}

// slogtest has the rules of package slog.
func TestHandlerFollowsTheRules(t *testing.T) {
	var out *strings.Builder
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out = &strings.Builder{}
		return newHandler(out, slog.LevelInfo, false)
	}, func(t *testing.T) map[string]any {
		fields := strings.Fields(strings.TrimSuffix(out.String(), "\n"))
		result := map[string]any{slog.LevelKey: fields[0]}
		if _, err := time.Parse(time.TimeOnly, fields[1]); err == nil {
			result[slog.TimeKey] = fields[1]
			fields = fields[1:]
		}
		result[slog.MessageKey] = fields[1]
		for _, field := range fields[2:] {
			key, value, _ := strings.Cut(field, "=")
			group := result
			for name, rest, ok := strings.Cut(key, "."); ok; name, rest, ok = strings.Cut(key, ".") {
				if group[name] == nil {
					group[name] = map[string]any{}
				}
				group, key = group[name].(map[string]any), rest
			}
			group[key] = value
		}
		return result
	})
}

func TestTheLogInAFileIsSlogsText(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer f.Close()
	d := New(None, f, f, os.Getenv)
	assert.False(t, d.Interactive())
	assert.IsType(t, &slog.TextHandler{}, d.Handler())
	d.short = true
	assert.IsType(t, &handler{}, d.Handler())
}
