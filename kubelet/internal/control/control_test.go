package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/history/fake"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node has a pod that is gone, with an event.
type node struct{ server.Agent }

func (node) Healthy() error              { return nil }
func (node) Problems() []control.Problem { return []control.Problem{{Path: "/m", Error: "bad"}} }
func (node) Holdings() []control.Holding {
	return []control.Holding{{Pod: "web", Resource: "cpu", Held: "2-3"}}
}
func (node) NodeName() string { return "n1" }

func (node) NodeObject(context.Context) (*v1.Node, error) { return nil, errors.New("no node object") }

func (node) StopContainers(_ context.Context, uid types.UID, names []string, by string) error {
	if uid != "u1" {
		return errors.New("no such pod")
	}
	return errors.New(names[0] + " and " + names[1] + by)
}

func (node) Status() control.Status          { return control.Status{NodeName: "n1"} }
func (node) Pods() []*v1.Pod                 { return nil }
func (node) Terminating() []*v1.Pod          { return nil }
func (node) Ending(context.Context) []string { return []string{"default/web"} }

func (node) Gone() []recent.Gone {
	return []recent.Gone{{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, At: time.Unix(1, 0).UTC()}}
}

func (node) Events(uid types.UID) []runtime.Event {
	return []runtime.Event{{Pod: runtime.PodRef{UID: uid}, Reason: "Killing", Count: 2, First: time.Unix(1, 0).UTC()}}
}

func (n node) AllEvents() []runtime.Event { return n.Events("all") }

func (node) Images(_ context.Context, goal gc.ImageGoal) (gc.ImagePreview, error) {
	return gc.ImagePreview{Input: gc.ImageInput{Goal: goal}}, nil
}

func (node) Disk(_ context.Context, goal gc.ImageGoal) control.Disk {
	return control.Disk{Items: []control.DiskItem{{Kind: "image", Name: string(goal)}}}
}

func (node) CollectImages(_ context.Context, goal gc.ImageGoal) control.Collected {
	return control.Collected{Error: "goal " + string(goal)}
}

func TestImages(t *testing.T) {
	for query, goal := range map[string]gc.ImageGoal{"": gc.ImagesToThresholds, "?goal=all": gc.AllUnusedImages,
		"?goal=x": gc.ImagesToThresholds} {
		var preview gc.ImagePreview
		require.NoError(t,
			json.NewDecoder(request(t, control.NewStop(), "GET", control.ImagesPath+query).Body).Decode(&preview))
		assert.Equal(t, goal, preview.Input.Goal)
		var disk control.Disk
		require.NoError(t,
			json.NewDecoder(request(t, control.NewStop(), "GET", control.DiskPath+query).Body).Decode(&disk))
		assert.Equal(t, []control.DiskItem{{Kind: "image", Name: string(goal)}}, disk.Items)
		var done control.Collected
		require.NoError(t,
			json.NewDecoder(request(t, control.NewStop(), "POST", control.ImageGCPath+query).Body).Decode(&done))
		assert.Equal(t, "goal "+string(goal), done.Error)
	}
	assert.Equal(t, http.StatusNotFound, request(t, control.NewStop(), "GET", control.ImageGCPath).Code,
		"a GET changes nothing")
}

func (node) History() history.Store {
	var h fake.History
	h.Record(runtime.Record{Pod: runtime.PodRef{UID: "u1", Name: "web"}, Stage: runtime.StageSeen,
		Kind: runtime.KindContainerRunning})
	return &h
}

func request(t *testing.T, stop *control.Stop, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	control.Handler(node{}, stop, server.Options{}).ServeHTTP(rec,
		httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return rec
}

func TestHandler(t *testing.T) {
	stop := control.NewStop()
	var gone []recent.Gone
	require.NoError(t, json.NewDecoder(request(t, stop, "GET", control.GonePath).Body).Decode(&gone))
	assert.Equal(t, node{}.Gone(), gone)
	var events []runtime.Event
	require.NoError(t, json.NewDecoder(request(t, stop, "GET", control.EventsPath+"u1").Body).Decode(&events))
	assert.Equal(t, node{}.Events("u1"), events)
	require.NoError(t, json.NewDecoder(request(t, stop, "GET", control.EventsPath+"?uid=u2&uid=u1").Body).Decode(&events))
	assert.Equal(t, append(node{}.Events("u2"), node{}.Events("u1")...), events)

	var histories control.Histories
	require.NoError(t, json.NewDecoder(request(t, stop, "GET", control.HistoryPath).Body).Decode(&histories))
	assert.Equal(t, control.Histories{NodeName: "n1", Pods: node{}.History().Pods()}, histories)
	var entry history.Entry
	require.NoError(t, json.NewDecoder(request(t, stop, "GET", control.HistoryPath+"u1").Body).Decode(&entry))
	assert.Equal(t, node{}.History().Entries("u1")[0].Record, entry.Record)
	assert.Empty(t, request(t, stop, "GET", control.HistoryPath+"u2").Body.String())
	assert.Equal(t, "no node object\n", request(t, stop, "GET", control.NodePath).Body.String())
	assert.Equal(t, "a and b, by root\n", request(t, stop, "POST",
		control.RestartPath+"u1?container=a&container=b&by=,+by+root").Body.String())
	assert.Equal(t, "ok", request(t, stop, "GET", "/healthz").Body.String(), "the API of package server")
	assert.Equal(t, http.StatusNotFound, request(t, stop, "GET", control.StopPath).Code)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.False(t, stop.Run(ctx, nil), "no client has requested it")
}

func TestStop(t *testing.T) {
	for _, tt := range []struct {
		err  error
		last control.Progress
	}{
		{nil, control.Progress{Done: true}},
		{errors.New("one is left"), control.Progress{Error: "one is left"}},
	} {
		stop := control.NewStop()
		ended := make(chan bool, 1)
		go func() { ended <- stop.Run(t.Context(), func(context.Context) error { return tt.err }) }()
		for range 2 { // two clients
			dec := json.NewDecoder(request(t, stop, "POST", control.StopPath).Body)
			var p control.Progress
			for dec.More() {
				p = control.Progress{}
				require.NoError(t, dec.Decode(&p))
			}
			assert.Equal(t, tt.last, p)
		}
		assert.Equal(t, tt.err == nil, <-ended)
	}
}
