package cri

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

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
				PodSandboxStatus: &criv1.PodSandboxStatus{Labels: labels, Metadata: &criv1.PodSandboxMetadata{Uid: "u",
					Namespace: "n", Name: "p"}},
			},
			runtime.Hint{Pod: pod, ID: "c", Event: runtime.HintCreated, Age: 3 * time.Second},
		},
		{
			"a type that nobody knows",
			&criv1.ContainerEventResponse{ContainerId: "c", ContainerEventType: 99,
				PodSandboxStatus: &criv1.PodSandboxStatus{Labels: labels}},
			runtime.Hint{Pod: pod, ID: "c"},
		},
		{
			"a type that is known",
			&criv1.ContainerEventResponse{ContainerId: "c",
				ContainerEventType: criv1.ContainerEventType_CONTAINER_STOPPED_EVENT,
				PodSandboxStatus:   &criv1.PodSandboxStatus{Labels: labels}},
			runtime.Hint{Pod: pod, ID: "c", Event: runtime.HintStopped},
		},
		{
			"no labels",
			&criv1.ContainerEventResponse{PodSandboxStatus: &criv1.PodSandboxStatus{
				Metadata: &criv1.PodSandboxMetadata{Uid: "u", Namespace: "n", Name: "p"}}},
			runtime.Hint{Pod: pod},
		},
		{
			"no metadata, and only the UID as a label",
			&criv1.ContainerEventResponse{PodSandboxStatus: &criv1.PodSandboxStatus{
				Labels: map[string]string{crimeta.LabelPodUID: "u"}}},
			runtime.Hint{Pod: runtime.PodRef{UID: "u"}},
		},
		{
			"no sandbox",
			&criv1.ContainerEventResponse{ContainerId: "c", ContainersStatuses: []*criv1.ContainerStatus{nil,
				{}, {Labels: labels}}},
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
	for _, event := range []*criv1.ContainerEventResponse{{},
		{ContainerId: "a", ContainerEventType: criv1.ContainerEventType_CONTAINER_STOPPED_EVENT,
			PodSandboxStatus: &criv1.PodSandboxStatus{Metadata: &criv1.PodSandboxMetadata{Uid: "u", Namespace: "n",
				Name: "p"}}}, {ContainersStatuses: []*criv1.ContainerStatus{{}}}} {
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
