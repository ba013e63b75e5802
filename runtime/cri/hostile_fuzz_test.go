package cri

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// liar is a runtime that answers with what it is given.
type liar struct {
	criv1.RuntimeServiceClient
	sandboxes  *criv1.ListPodSandboxResponse
	containers *criv1.ListContainersResponse
	sandbox    *criv1.PodSandboxStatusResponse
	container  *criv1.ContainerStatusResponse
}

func (liar) Version(context.Context, *criv1.VersionRequest, ...grpc.CallOption) (*criv1.VersionResponse, error) {
	return &criv1.VersionResponse{RuntimeName: "liar"}, nil
}

func (l liar) ListPodSandbox(context.Context, *criv1.ListPodSandboxRequest,
	...grpc.CallOption) (*criv1.ListPodSandboxResponse, error) {
	return l.sandboxes, nil
}

func (l liar) ListContainers(context.Context, *criv1.ListContainersRequest,
	...grpc.CallOption) (*criv1.ListContainersResponse, error) {
	return l.containers, nil
}

func (l liar) PodSandboxStatus(context.Context, *criv1.PodSandboxStatusRequest,
	...grpc.CallOption) (*criv1.PodSandboxStatusResponse, error) {
	return l.sandbox, nil
}

func (l liar) ContainerStatus(context.Context, *criv1.ContainerStatusRequest,
	...grpc.CallOption) (*criv1.ContainerStatusResponse, error) {
	return l.container, nil
}

func (liar) RemoveContainer(context.Context, *criv1.RemoveContainerRequest,
	...grpc.CallOption) (*criv1.RemoveContainerResponse, error) {
	return &criv1.RemoveContainerResponse{}, nil
}

// Whatever the lists and statuses of a runtime have, nothing panics, and no log is removed
// that is not below the logs directory.
func FuzzReplies(f *testing.F) {
	labels := map[string]string{
		crimeta.LabelPodUID: "u", crimeta.LabelPodName: "web", crimeta.LabelPodNamespace: "default",
		crimeta.LabelContainerName: "a",
	}
	encoded := func(m proto.Message) []byte {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return data
	}
	f.Add(
		encoded(&criv1.ListPodSandboxResponse{Items: []*criv1.PodSandbox{{Id: "s", Labels: labels},
			{Id: "t", Labels: labels, Metadata: &criv1.PodSandboxMetadata{Attempt: 1}}}}),
		encoded(&criv1.ListContainersResponse{Containers: []*criv1.Container{{Id: "c", PodSandboxId: "s",
			Labels: labels}, {Id: "d", Labels: labels, CreatedAt: -1}}}),
		encoded(&criv1.PodSandboxStatusResponse{
			Status: &criv1.PodSandboxStatus{Network: &criv1.PodSandboxNetworkStatus{Ip: "10.0.0.1"}}}),
		encoded(&criv1.ContainerStatusResponse{Status: &criv1.ContainerStatus{
			Labels: labels, State: criv1.ContainerState_CONTAINER_EXITED, ExitCode: 1,
			LogPath:     "/none/default_web_u/a/0.log",
			Annotations: map[string]string{crimeta.AnnotationTerminationMessagePath: "/dev/termination-log"},
			Mounts:      []*criv1.Mount{{ContainerPath: "/dev/termination-log", HostPath: "/none"}},
			Resources: &criv1.ContainerResources{Linux: &criv1.LinuxContainerResources{CpuQuota: 1, CpuPeriod: 1,
				CpuShares: 1 << 40}},
		}}),
	)
	f.Add([]byte(nil), []byte(nil), []byte(nil), []byte(nil))
	f.Fuzz(func(t *testing.T, sandboxes, containers, sandbox, container []byte) {
		l := liar{
			sandboxes: &criv1.ListPodSandboxResponse{}, containers: &criv1.ListContainersResponse{},
			sandbox: &criv1.PodSandboxStatusResponse{}, container: &criv1.ContainerStatusResponse{},
		}
		for _, reply := range []struct {
			data []byte
			into proto.Message
		}{{sandboxes, l.sandboxes}, {containers, l.containers}, {sandbox, l.sandbox}, {container, l.container}} {
			if proto.Unmarshal(reply.data, reply.into) != nil {
				return
			}
		}
		r := New(l, nil, Options{})
		r.unstreamed.Store(true)
		pods, err := r.ListPods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods {
			_, _ = r.InspectPod(t.Context(), pod.PodRef)
		}
		_, _ = r.InspectPod(t.Context(), runtime.PodRef{UID: "u", Name: "web", Namespace: "default"})
		_ = r.RemoveContainer(t.Context(), runtime.ContainerID{Type: "liar", ID: "c"})
	})
}
