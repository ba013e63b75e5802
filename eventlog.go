package kubeletkit

import (
	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// logEvents returns an EventFunc that logs each event under its message: warnings at level 0, others and those that are logged already at
// level 2.
func logEvents(log logr.Logger) runtime.EventFunc {
	return func(e runtime.Event) {
		l := log
		if e.Logged || e.Type != v1.EventTypeWarning {
			l = log.V(2)
		}
		if !l.Enabled() {
			return
		}
		values := []any{"reason", e.Reason}
		if e.Pod.UID != "" { // else it is about the node
			values = append(values, "pod", e.Pod)
		}
		if e.FieldPath != "" {
			values = append(values, "path", e.FieldPath)
		}
		if e.Count > 1 {
			values = append(values, "count", e.Count)
		}
		l.Info(e.Message, values...)
	}
}
