package kubelet

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestEventsInTheLog(t *testing.T) {
	logged := func(level slog.Level) string {
		var out bytes.Buffer
		event := logEvents(slog.New(slog.NewTextHandler(&out,
			&slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}})))
		for _, name := range []string{"a", "b"} {
			pod := runtime.PodRef{Namespace: "default", Name: name, UID: "u"}
			event(runtime.Event{Pod: pod, Type: v1.EventTypeNormal, Reason: "Started", FieldPath: "spec.containers{c}",
				Message: "m", Count: 1})
			event(runtime.Event{Pod: pod, Type: v1.EventTypeWarning, Reason: "BackOff", Message: "m", Count: 4})
		}
		event(runtime.Event{Type: v1.EventTypeWarning, Reason: "FreeDiskSpaceFailed", Message: "the disk is full",
			Count: 1})
		event(runtime.Event{Type: v1.EventTypeWarning, Reason: "FailedSync", Message: "m", Count: 1, Logged: true})
		return out.String()
	}
	text := logged(slog.LevelInfo)
	assert.Equal(t, 3, strings.Count(text, "level=WARN"))
	assert.Contains(t, text, "level=WARN msg=\"the disk is full\" reason=FreeDiskSpaceFailed\n", "about the node")
	assert.Contains(t, text, "level=WARN msg=m pod=default/b(u) reason=BackOff count=4\n")
	assert.NotContains(t, text, "Started")
	assert.NotContains(t, text, "FailedSync", "the log has it already")
	all := logged(slog.Level(-2))
	assert.Contains(t, all, "level=DEBUG+2 msg=m pod=default/a(u) path=spec.containers{c} reason=Started\n")
	assert.Contains(t, all, "level=DEBUG+2 msg=m reason=FailedSync\n")
}
