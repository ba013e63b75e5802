package kubelet

import (
	"context"
	"log/slog"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// levelChange is the level of log lines about changes that are no problem: -v=2.
const levelChange = slog.Level(-2)

// logEvents returns an EventFunc that logs each event under its message: warnings always, others and those that are
// logged already with -v=2.
func logEvents(log *slog.Logger) runtime.EventFunc {
	return func(e runtime.Event) {
		level := levelChange
		if e.Type == v1.EventTypeWarning && !e.Logged {
			level = slog.LevelWarn
		}
		var attrs []any
		if e.Pod.UID != "" { // else it is about the node
			attrs = append(attrs, "pod", e.Pod)
		}
		if e.FieldPath != "" {
			attrs = append(attrs, "path", e.FieldPath)
		}
		attrs = append(attrs, "reason", e.Reason)
		if e.Count > 1 {
			attrs = append(attrs, "count", e.Count)
		}
		log.Log(context.Background(), level, e.Message, attrs...)
	}
}
