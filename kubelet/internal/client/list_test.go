package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
)

// A list that is watched has a line for each change, and ends with a signal.
func TestWatch(t *testing.T) {
	var calls atomic.Int32
	var names atomic.Bool // the pod stays
	root := serving(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		list := v1.PodList{Items: []v1.Pod{*podtest.Pod(v1.PodPending)}}
		switch n := calls.Add(1); {
		case n > 5 && !names.Load():
			list.Items = nil
		case n > 3:
			list.Items[0].Status.PodIP = "10.0.0.1"
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	for form, want := range map[string]string{
		"": "NAMESPACE   NAME     READY   STATUS    RESTARTS   AGE   IP\ndefault     web-n1   0/3     Pending   0          90s   <none>\n" +
			"default     web-n1   0/3     Pending   0          90s   10.0.0.1\ndefault     web-n1   0/3     Gone    " +
			"  0          90s   10.0.0.1\n",
		"name": "pod/web-n1\npod/web-n1\n",
	} {
		calls.Store(0)
		names.Store(form == "name")
		wctx, end := context.WithCancel(t.Context())
		out := &stopper{stop: end}
		seen := 0
		out.stop = func() {
			if seen++; seen == strings.Count(want, "web-n1") {
				end()
			}
		}
		args := []string{"pods", "--root-dir", root, "-w"}
		if form != "" {
			args = append(args, "-o", form)
		}
		require.NoError(t, Run(wctx, args, Env{Out: out, Err: out, period: time.Millisecond,
			now: func() time.Time { return podtest.Noon }}))
		assert.Equal(t, want, out.String())
	}
}

func TestStatusHasAColorOnATerminal(t *testing.T) {
	for status, want := range map[string]string{
		"Running": green, "Completed": green, "Pending": yellow, "Init:0/2": yellow, "Terminating": yellow, "CrashLoopBackOff": red, "Init:Error": red, "OOMKilled": red, "Failed": red,
	} {
		assert.Equal(t, want, statusColor(status), status)
	}
	root := answering(t, map[string]any{"/pods": v1.PodList{Items: []v1.Pod{*podtest.Pod(v1.PodPending)}}})
	list := func(e Env) string {
		var out strings.Builder
		e.Out, e.Err, e.now = &out, &out, func() time.Time { return podtest.Noon }
		require.NoError(t, Run(t.Context(), []string{"pods", "--root-dir", root}, e))
		return out.String()
	}
	assert.NotContains(t, list(Env{}), "\x1b", "no terminal")
	colored := list(Env{colored: true})
	assert.Contains(t, colored, "\x1b[33mPending\x1b[0m")
	assert.Equal(t, list(Env{}), strings.NewReplacer("\x1b[33m", "", "\x1b[0m", "").Replace(colored),
		"colors take no columns")
}

func TestFieldPath(t *testing.T) {
	pod := podtest.Pod(v1.PodRunning, podtest.Restarted(podtest.Running("a", true), 3, time.Minute))
	for text, want := range map[string]any{
		".metadata.name": "web-n1", "{.metadata.name}": "web-n1", ".status.containerStatuses[0].restartCount": 3., ".status.containerStatuses[7].name": nil, ".metadata.no.such": nil,
	} {
		path, ok := fieldPath(text)
		require.True(t, ok, text)
		assert.Equal(t, want, fieldOf(pod, path), text)
	}
	for _, text := range []string{"", ".", "name", "{.a", ".a..b"} {
		_, ok := fieldPath(text)
		assert.False(t, ok, text)
	}
	assert.Negative(t, orderOf("100m").compare(orderOf("2")))
	assert.Negative(t, orderOf("2026-01-02T11:00:00Z").compare(orderOf("2026-01-02T12:00:00Z")))
	assert.Negative(t, orderOf(nil).compare(orderOf("a")))
}
