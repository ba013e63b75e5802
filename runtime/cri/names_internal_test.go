package cri

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// oneContainer is a runtime with one container that runs, and has a preStop hook.
type oneContainer struct {
	criv1.RuntimeServiceClient
	id     string
	labels map[string]string
}

func (s *oneContainer) Version(context.Context, *criv1.VersionRequest,
	...grpc.CallOption) (*criv1.VersionResponse, error) {
	return &criv1.VersionResponse{RuntimeName: "fake"}, nil
}

func (s *oneContainer) StreamPodSandboxes(context.Context, *criv1.StreamPodSandboxesRequest,
	...grpc.CallOption) (grpc.ServerStreamingClient[criv1.StreamPodSandboxesResponse], error) {
	return nil, status.Error(codes.Unimplemented, "")
}

func (s *oneContainer) StreamContainers(context.Context, *criv1.StreamContainersRequest,
	...grpc.CallOption) (grpc.ServerStreamingClient[criv1.StreamContainersResponse], error) {
	return nil, status.Error(codes.Unimplemented, "")
}

func (s *oneContainer) ListPodSandbox(context.Context, *criv1.ListPodSandboxRequest,
	...grpc.CallOption) (*criv1.ListPodSandboxResponse, error) {
	return &criv1.ListPodSandboxResponse{}, nil
}

func (s *oneContainer) ListContainers(context.Context, *criv1.ListContainersRequest,
	...grpc.CallOption) (*criv1.ListContainersResponse, error) {
	return &criv1.ListContainersResponse{Containers: []*criv1.Container{{Id: s.id,
		State: criv1.ContainerState_CONTAINER_RUNNING, Labels: s.labels}}}, nil
}

func (s *oneContainer) ContainerStatus(context.Context, *criv1.ContainerStatusRequest,
	...grpc.CallOption) (*criv1.ContainerStatusResponse, error) {
	return &criv1.ContainerStatusResponse{Status: &criv1.ContainerStatus{
		Id: s.id, State: criv1.ContainerState_CONTAINER_RUNNING, Labels: s.labels,
		Annotations: map[string]string{"io.kubernetes.container.preStopHandler": `{"sleep": {"seconds": 0}}`},
	}}, nil
}

func (s *oneContainer) StopContainer(context.Context, *criv1.StopContainerRequest,
	...grpc.CallOption) (*criv1.StopContainerResponse, error) {
	return &criv1.StopContainerResponse{}, nil
}

// The names of pods and containers in labels become parts of paths, and of messages in which
// they replace IDs.
func TestNamesThatAreNone(t *testing.T) {
	const long = 1 << 20
	labels := func(container string) map[string]string {
		return map[string]string{
			crimeta.LabelPodUID: "u1", crimeta.LabelPodName: "web", crimeta.LabelPodNamespace: "default",
			crimeta.LabelContainerName: container,
		}
	}
	for name, service := range map[string]*oneContainer{
		"path":         {id: "attack", labels: labels("/../../victim")},
		"long":         {id: "e", labels: labels(strings.Repeat("e", long))},
		"no ID":        {id: "", labels: labels("a")},
		"ID of a byte": {id: "n", labels: labels(strings.Repeat("n", 200))},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "pods", "u1")
			require.NoError(t, os.MkdirAll(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(root, "victim"), []byte("kept"), 0o600))
			rt := New(service, nil, Options{})
			observed, err := rt.InspectPod(t.Context(), runtime.PodRef{UID: "u1", Namespace: "default", Name: "web"})
			require.NoError(t, err)
			require.Len(t, observed.Containers, 1, "it is stopped by its ID")
			var messages []string
			require.NoError(t, rt.KillPod(t.Context(), runtime.PodKill{
				Status: observed, Dir: dir, Event: func(e runtime.Event) { messages = append(messages, e.Message) },
			}))
			require.NotEmpty(t, messages)
			for _, m := range messages {
				assert.Less(t, len(m), 1000)
			}
			kept, err := os.ReadFile(filepath.Join(root, "victim"))
			require.NoError(t, err)
			assert.Equal(t, "kept", string(kept))
			above, err := filepath.Glob(filepath.Join(root, "pods", "*"))
			require.NoError(t, err)
			assert.Equal(t, []string{dir}, above)
		})
	}
	// A pod with such names is none of ours: its directory would be anywhere.
	for _, label := range []string{crimeta.LabelPodUID, crimeta.LabelPodName, crimeta.LabelPodNamespace} {
		for _, value := range []string{"../../etc", "..", ".", strings.Repeat("x", long)} {
			service := &oneContainer{id: "1", labels: labels("a")}
			service.labels[label] = value
			pods, err := New(service, nil, Options{}).ListPods(t.Context())
			require.NoError(t, err)
			assert.Empty(t, pods)
		}
	}
	h := podOfEvent(&criv1.ContainerEventResponse{PodSandboxStatus: &criv1.PodSandboxStatus{
		Metadata: &criv1.PodSandboxMetadata{Uid: "../x"}}})
	assert.Zero(t, h)
}
