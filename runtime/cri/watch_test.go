package cri

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

type eventStream = grpc.ServerStreamingServer[criv1.ContainerEventResponse]

// eventServer is a CRI service that sends events.
type eventServer struct {
	statusServer
	events func(eventStream) error
}

func (s *eventServer) GetContainerEvents(_ *criv1.GetEventsRequest, stream eventStream) error {
	return s.events(stream)
}

func eventOf(id string) *criv1.ContainerEventResponse {
	return &criv1.ContainerEventResponse{
		ContainerId: id, ContainerEventType: criv1.ContainerEventType_CONTAINER_STOPPED_EVENT,
		PodSandboxStatus: &criv1.PodSandboxStatus{Metadata: &criv1.PodSandboxMetadata{Uid: "u", Namespace: "n", Name: "p"}},
	}
}

// watch runs WatchEvents against a server on a socket and returns what the callbacks
// were told, in order.
func watch(t *testing.T, ctx context.Context, events func(eventStream) error, tell func(string)) ([]string, error) {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	t.Cleanup(serve(t, path, &eventServer{events: events}))
	rt, err := Dial(ctx, path, Options{CallTimeout: time.Nanosecond}) // bounds no stream
	require.NoError(t, err)
	defer rt.Close()
	var told []string // without a lock: all calls are made by this goroutine
	note := func(what string) {
		told = append(told, what)
		if tell != nil {
			tell(what)
		}
	}
	err = rt.WatchEvents(ctx, func() { note("established") }, func(h runtime.Hint) { note(h.ID) })
	require.Error(t, err)
	return told, err
}

func TestWatchEvents(t *testing.T) {
	broken := status.Error(codes.ResourceExhausted, "too slow")

	t.Run("a header says that the stream stands", func(t *testing.T) {
		heard := make(chan struct{})
		told, err := watch(t, t.Context(), func(s eventStream) error {
			if err := s.SendHeader(metadata.MD{}); err != nil {
				return err
			}
			<-heard // no event before
			for _, id := range []string{"a", "b", "a"} {
				if err := s.Send(eventOf(id)); err != nil {
					return err
				}
			}
			return broken
		}, func(what string) {
			if what == "established" {
				close(heard)
			}
		})
		assert.Equal(t, []string{"established", "a", "b", "a"}, told)
		assert.EqualError(t, err, "GetContainerEvents: too slow")
		assert.NotErrorIs(t, err, runtime.ErrUnavailable)
		assert.NotErrorIs(t, err, errors.ErrUnsupported)
	})

	t.Run("else the first event does", func(t *testing.T) {
		told, _ := watch(t, t.Context(), func(s eventStream) error {
			if err := s.Send(eventOf("a")); err != nil {
				return err
			}
			return broken
		}, nil)
		assert.Equal(t, []string{"established", "a"}, told)
	})

	t.Run("a stream that never stood", func(t *testing.T) {
		told, err := watch(t, t.Context(), func(eventStream) error { return nil }, nil)
		assert.Empty(t, told)
		assert.ErrorIs(t, err, errStreamEnded)
	})

	t.Run("no such stream", func(t *testing.T) {
		told, err := watch(t, t.Context(), func(s eventStream) error {
			return criv1.UnimplementedRuntimeServiceServer{}.GetContainerEvents(nil, s)
		}, nil)
		assert.Empty(t, told)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
	})

	t.Run("the context ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		told, err := watch(t, ctx, func(s eventStream) error {
			if err := s.Send(eventOf("a")); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		}, func(what string) {
			if what == "a" {
				cancel()
			}
		})
		assert.Equal(t, []string{"established", "a"}, told)
		assert.ErrorIs(t, err, context.Canceled)
	})
}

// TestWatchEventsOfARuntimeThatGoesAway needs no timeout to find out.
func TestWatchEventsOfARuntimeThatGoesAway(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	rt, err := Dial(t.Context(), path, Options{})
	require.NoError(t, err)
	defer rt.Close()
	err = rt.WatchEvents(t.Context(), nil, nil)
	assert.ErrorIs(t, err, runtime.ErrUnavailable, "there is no socket")

	stop := serve(t, path, &eventServer{events: func(s eventStream) error {
		if err := s.SendHeader(metadata.MD{}); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}})
	require.Eventually(t, func() bool { return rt.Check(t.Context()) == nil }, 10*time.Second, 20*time.Millisecond)
	established := make(chan struct{})
	go func() {
		<-established
		stop()
	}()
	err = rt.WatchEvents(t.Context(), func() { close(established) }, nil)
	assert.ErrorIs(t, err, runtime.ErrUnavailable)
}

func TestHintOf(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	labels := map[string]string{crimeta.LabelPodUID: "u", crimeta.LabelPodNamespace: "n", crimeta.LabelPodName: "p"}
	pod := runtime.PodRef{UID: "u", Namespace: "n", Name: "p"}
	tests := []struct {
		name  string
		event *criv1.ContainerEventResponse
		want  runtime.Hint
	}{
		{"nothing", &criv1.ContainerEventResponse{}, runtime.Hint{}},
		{"no event at all", nil, runtime.Hint{}},
		{
			"as kubelet's pods have it",
			&criv1.ContainerEventResponse{
				ContainerId: "c", CreatedAt: now.Add(-3 * time.Second).UnixNano(),
				PodSandboxStatus: &criv1.PodSandboxStatus{Labels: labels, Metadata: &criv1.PodSandboxMetadata{Uid: "u", Namespace: "n", Name: "p"}},
			},
			runtime.Hint{Pod: pod, ID: "c", Event: runtime.HintCreated, Age: 3 * time.Second},
		},
		{
			"a type that nobody knows",
			&criv1.ContainerEventResponse{ContainerId: "c", ContainerEventType: 99, PodSandboxStatus: &criv1.PodSandboxStatus{Labels: labels}},
			runtime.Hint{Pod: pod, ID: "c"},
		},
		{
			"a type that is known",
			&criv1.ContainerEventResponse{ContainerId: "c", ContainerEventType: criv1.ContainerEventType_CONTAINER_STOPPED_EVENT, PodSandboxStatus: &criv1.PodSandboxStatus{Labels: labels}},
			runtime.Hint{Pod: pod, ID: "c", Event: runtime.HintStopped},
		},
		{
			"no labels",
			&criv1.ContainerEventResponse{PodSandboxStatus: &criv1.PodSandboxStatus{Metadata: &criv1.PodSandboxMetadata{Uid: "u", Namespace: "n", Name: "p"}}},
			runtime.Hint{Pod: pod},
		},
		{
			"no metadata, and only the UID as a label",
			&criv1.ContainerEventResponse{PodSandboxStatus: &criv1.PodSandboxStatus{Labels: map[string]string{crimeta.LabelPodUID: "u"}}},
			runtime.Hint{Pod: runtime.PodRef{UID: "u"}},
		},
		{
			"no sandbox",
			&criv1.ContainerEventResponse{ContainerId: "c", ContainersStatuses: []*criv1.ContainerStatus{nil, {}, {Labels: labels}}},
			runtime.Hint{Pod: pod, ID: "c", Event: runtime.HintCreated},
		},
		{"nothing but an ID", &criv1.ContainerEventResponse{ContainerId: "c", PodSandboxStatus: &criv1.PodSandboxStatus{}}, runtime.Hint{ID: "c", Event: runtime.HintCreated}},
		{"from the future", &criv1.ContainerEventResponse{CreatedAt: now.Add(time.Hour).UnixNano()}, runtime.Hint{}},
		{"from before time", &criv1.ContainerEventResponse{CreatedAt: -1}, runtime.Hint{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, hintOf(tt.event, now))
		})
	}
}

func FuzzHintOf(f *testing.F) {
	codec := encoding.GetCodecV2(proto.Name)
	for _, event := range []*criv1.ContainerEventResponse{{}, eventOf("a"), {ContainersStatuses: []*criv1.ContainerStatus{{}}}} {
		data, err := codec.Marshal(event)
		require.NoError(f, err)
		f.Add(data.Materialize())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var event criv1.ContainerEventResponse
		if codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, &event) != nil {
			return
		}
		h := hintOf(&event, time.Now())
		assert.Equal(t, event.GetContainerId(), h.ID)
		assert.GreaterOrEqual(t, h.Age, time.Duration(0))
	})
}
