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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/runtime"
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

// Images and the node are watched like pods; their ages alone make no line.
func TestWatchOfImagesAndNode(t *testing.T) {
	var calls atomic.Int32
	mux := http.NewServeMux()
	answer := func(path string, value func(n int32) any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(value(calls.Add(1)))
		})
	}
	answer(control.ImagesPath, func(n int32) any {
		p := gc.ImagePreview{Input: gc.ImageInput{Now: podtest.Noon.Add(time.Duration(n) * time.Second)}}
		if n < 4 {
			p.Input.Images = []gc.Image{{Image: runtime.Image{ID: "i1", Tags: []string{"app:1"}, Size: 2048},
				FirstSeen: podtest.Noon}}
		}
		return p
	})
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(v1.PodList{})
	})
	answer(control.NodePath, func(n int32) any {
		node := v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge7",
			CreationTimestamp: metav1.NewTime(podtest.Noon.Add(-time.Duration(n) * time.Hour))}}
		if n > 3 {
			node.Spec.Unschedulable = true
		}
		return node
	})
	root := serving(t, mux)
	for command, want := range map[string]string{
		"images": "IMAGE   SIZE      AGE   LAST USED   KEPT BY\napp:1   2.0 KiB   1s    never       -\n" +
			"app:1   2.0 KiB   3s    never       gone\n",
		"get nodes": "NAME    STATUS     AGE   VERSION\nedge7   NotReady   60m   <unknown>\n" +
			"edge7   NotReady,SchedulingDisabled   4h    <unknown>\n",
	} {
		calls.Store(0)
		ctx, end := context.WithCancel(t.Context())
		out, lines := &stopper{}, 0
		out.stop = func() {
			if lines++; lines == 2 {
				end()
			}
		}
		require.NoError(t, Run(ctx, append(strings.Fields(command), "--root-dir", root, "-w"), Env{Out: out, Err: out,
			period: time.Millisecond, now: func() time.Time { return podtest.Noon }}))
		assert.Equal(t, want, out.String(), command)
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
