package main

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
		event := logEvents(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
		for _, name := range []string{"a", "b"} {
			pod := runtime.PodRef{Namespace: "default", Name: name, UID: "u"}
			event(runtime.Event{Pod: pod, Type: v1.EventTypeWarning, Reason: "MissingClusterDNS", Message: "m", Count: 1})
			event(runtime.Event{Pod: pod, Type: v1.EventTypeNormal, Reason: "Started", FieldPath: "spec.containers{c}", Message: "m", Count: 1})
			event(runtime.Event{Pod: pod, Type: v1.EventTypeWarning, Reason: "BackOff", Message: "m", Count: 4})
		}
		event(runtime.Event{Type: v1.EventTypeWarning, Reason: "FreeDiskSpaceFailed", Message: "m", Count: 1})
		return out.String()
	}
	text := logged(slog.LevelInfo)
	assert.Equal(t, 1, strings.Count(text, "no cluster DNS"), "it cannot be helped, so once is enough")
	assert.Equal(t, 3, strings.Count(text, "level=WARN")-1)
	assert.Contains(t, text, "level=WARN msg=Event type=Warning reason=FreeDiskSpaceFailed message=m\n", "about the node")
	assert.Contains(t, text, "level=WARN msg=Event pod=default/b(u) type=Warning reason=BackOff message=m count=4\n")
	assert.NotContains(t, text, "Started")
	assert.Contains(t, logged(slog.Level(-2)), "level=DEBUG+2 msg=Event pod=default/a(u) path=spec.containers{c} type=Normal reason=Started message=m\n")
}
