package terminal

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// newJSONHandler returns a handler that writes records with the keys of kubelet's JSON log: ts in milliseconds, caller,
// msg, v, and err and logger as logr has them. An error has no v, and a warning, which kubelet does not have, has the
// level in its place.
func newJSONHandler(out io.Writer, level slog.Leveler) slog.Handler {
	return slog.NewJSONHandler(out, &slog.HandlerOptions{AddSource: true, Level: level, ReplaceAttr: jsonAttr})
}

func jsonAttr(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 {
		switch value := a.Value.Any().(type) {
		case time.Time:
			if a.Key == slog.TimeKey {
				return slog.Float64("ts", float64(value.UnixMicro())/1000)
			}
		case slog.Level:
			return jsonLevel(a, value)
		case *slog.Source:
			if a.Key == slog.SourceKey {
				dir, file := filepath.Split(value.File)
				return slog.String("caller", fmt.Sprintf("%s/%s:%d", filepath.Base(dir), file, value.Line))
			}
		}
	}
	switch value := a.Value.Any().(type) {
	case runtime.PodRef:
		return slog.Any(a.Key, map[string]string{"namespace": value.Namespace, "name": value.Name,
			"uid": string(value.UID)})
	case time.Duration:
		return slog.String(a.Key, value.String())
	}
	return a
}

func jsonLevel(a slog.Attr, level slog.Level) slog.Attr {
	switch {
	case a.Key != slog.LevelKey:
		return a
	case level >= slog.LevelError:
		return slog.Attr{}
	case level >= slog.LevelWarn:
		return slog.String("level", "warning")
	default:
		return slog.Int("v", -int(level))
	}
}
