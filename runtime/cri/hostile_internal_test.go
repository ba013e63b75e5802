//go:build unix

package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// A container names the images that it mounts in an annotation, in which there is room for
// millions.
func TestUsesOfImagesAreBounded(t *testing.T) {
	var images []*criv1.Image
	var names []string
	for i := range 1000 {
		id := fmt.Sprint("i", i)
		images, names = append(images, &criv1.Image{Id: id}), append(names, id)
	}
	named := func(names string) *criv1.Container {
		return &criv1.Container{State: criv1.ContainerState_CONTAINER_EXITED, Annotations: map[string]string{crimeta.AnnotationImageVolumes: names}}
	}
	list := assembleImages(images, []*criv1.Container{named(strings.Repeat("i0,i1,", 100_000))}, "")
	assert.Len(t, list[0].UsedBy, 1, "once for a container")
	assert.Len(t, list[1].UsedBy, 1)
	assert.Empty(t, list[2].UsedBy)

	var containers []*criv1.Container
	all := strings.Join(names[:999], ",")
	for range 1000 {
		containers = append(containers, named(all))
	}
	containers[999].State = criv1.ContainerState_CONTAINER_RUNNING
	containers[998].Annotations[crimeta.AnnotationImageVolumes] = "i999"
	uses := 0
	for i, image := range assembleImages(images, containers, "") {
		require.NotEmpty(t, image.UsedBy, "image %d is in use", i)
		if i != 999 {
			assert.True(t, image.UsedBy[0].State == runtime.ContainerRunning || image.UsedBy[len(image.UsedBy)-1].State == runtime.ContainerRunning)
		}
		uses += len(image.UsedBy)
	}
	assert.LessOrEqual(t, uses, maxImageUses+len(images))
}

// largeStatuses is a runtime whose statuses are large.
type largeStatuses struct {
	criv1.RuntimeServiceClient
	status func() *criv1.ContainerStatus
	labels map[string]string
}

func (l largeStatuses) ContainerStatus(_ context.Context, req *criv1.ContainerStatusRequest, _ ...grpc.CallOption) (*criv1.ContainerStatusResponse, error) {
	return &criv1.ContainerStatusResponse{Status: l.status()}, nil
}

func (l largeStatuses) PodSandboxStatus(_ context.Context, req *criv1.PodSandboxStatusRequest, _ ...grpc.CallOption) (*criv1.PodSandboxStatusResponse, error) {
	return &criv1.PodSandboxStatusResponse{Status: &criv1.PodSandboxStatus{Id: req.GetPodSandboxId(), Labels: l.labels}}, nil
}

// Each status may have 16 MiB, and the statuses of all containers are kept.
func TestAllStatusesTogetherAreBounded(t *testing.T) {
	const large = 1 << 20 // one string in memory, as often as it is returned
	// client returns a client with statuses that leave room for less than four large ones.
	client := func(rs criv1.RuntimeServiceClient) *Runtime {
		rt := New(rs, nil, Options{})
		rt.index.weight = maxWeight - 4*large
		return rt
	}
	text := strings.Repeat("x", large)
	for name, s := range map[string]*criv1.ContainerStatus{
		"image": {ImageRef: text, ImageId: "i"},
		"mount": {Mounts: []*criv1.Mount{{HostPath: text}}},
		"ports": {Annotations: map[string]string{crimeta.AnnotationPorts: `[{"name":"` + text + `"}]`}},
		"hook":  {Annotations: map[string]string{crimeta.AnnotationPreStop: `{"exec":{"command":["` + text + `"]}}`}},
		"many ports": {Annotations: map[string]string{
			crimeta.AnnotationPorts: "[" + strings.Repeat("{},", large/elementWeight) + "{}]"}},
	} {
		t.Run(name, func(t *testing.T) {
			rt := client(largeStatuses{status: func() *criv1.ContainerStatus { return s }})
			inspect := func(i int) error {
				id := fmt.Sprint(i)
				rt.index.addContainer("u", id, "c", "s")
				_, err := rt.inspectContainer(t.Context(), "pod", "test", &containerItem{id: id, name: "c"})
				return err
			}
			for i := range 3 {
				require.NoError(t, inspect(i))
			}
			require.NoError(t, inspect(0), "it replaces the one before")
			require.ErrorIs(t, inspect(1000), errTooMuch)
			rt.index.removed("0")
			rt.index.removed("1")
			require.NoError(t, inspect(1001), "what was removed does not count")
		})
	}
	labels := map[string]string{"a": text}
	rt := client(largeStatuses{labels: labels})
	before := rt.index.weight
	for i := range 4 {
		id := fmt.Sprint(i)
		rt.index.addSandbox("u", id, true)
		_, err := rt.inspectSandbox(t.Context(), "pod", id)
		if i < 3 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, errTooMuch)
		}
	}
	assert.LessOrEqual(t, rt.index.weight, maxWeight)
	rt.index.listedAll(nil, rt.index.begin())
	assert.Equal(t, before, rt.index.weight)
}

// Messages are kept in the status of a pod and in its back-offs, and are written to the log.
func TestMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("é", 8<<20)
	err := wrapCall("PullImage", "pod", status.Error(codes.Unknown, long), nil)
	assert.Less(t, len(err.Error()), 2*maxMessage)
	assert.Less(t, len(judgePull("app:1", err).message), 2*maxMessage)
	s := statusOf(runtime.ContainerID{}, "", &criv1.ContainerStatus{State: criv1.ContainerState_CONTAINER_EXITED, Reason: long, Message: long}, &crimeta.Record{})
	assert.Less(t, len(s.Reason), 2*maxMessage)
	assert.Less(t, len(s.Message), 2*maxMessage)
	assert.Equal(t, "short", short("short"))

	require.NoError(t, checkID("CreateContainer", "pod", strings.Repeat("a", 64), nil))
	require.ErrorIs(t, checkID("CreateContainer", "pod", long, nil), errLongID)
}

// A runtime may report a container as exited that runs. Lists tell.
func TestContainerThatHasNotExited(t *testing.T) {
	state := criv1.ContainerState_CONTAINER_EXITED
	rt := New(largeStatuses{status: func() *criv1.ContainerStatus { return &criv1.ContainerStatus{State: state} }}, nil, Options{})
	list := func(state runtime.ContainerState) {
		rt.index.listedAll([]*runtime.Pod{{
			PodRef:     runtime.PodRef{UID: "u"},
			Containers: []runtime.Container{{ID: runtime.ContainerID{ID: "c"}, Name: "c", State: state}},
		}}, rt.index.begin())
	}
	known := func() bool {
		items, _ := rt.index.of("u")
		return items.containers[0].dead != nil
	}
	list(runtime.ContainerRunning)
	_, err := rt.inspectContainer(t.Context(), "pod", "test", &containerItem{id: "c"})
	require.NoError(t, err)
	require.True(t, known())
	list(runtime.ContainerExited)
	require.True(t, known(), "it is not asked for again")
	list(runtime.ContainerRunning)
	require.False(t, known())
}

// A pipe in the place of the directory of a log must not keep a container from its removal.
func TestLogDirectoryThatIsNone(t *testing.T) {
	logs := t.TempDir()
	labels := map[string]string{
		crimeta.LabelPodUID: "u1", crimeta.LabelPodName: "web", crimeta.LabelPodNamespace: "default", crimeta.LabelContainerName: "a",
	}
	dir := filepath.Join(logs, "default_web_u1", "a")
	require.NoError(t, os.Mkdir(filepath.Dir(dir), 0o755))
	require.NoError(t, syscall.Mkfifo(dir, 0o600))
	rt := New(nil, nil, Options{})
	removed := make(chan error, 1)
	go func() {
		removed <- rt.removeLogs(&criv1.ContainerStatus{LogPath: filepath.Join(dir, "0.log"), Labels: labels})
	}()
	select {
	case err := <-removed:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Error("it waits for the other end of the pipe")
		f, err := os.OpenFile(dir, os.O_RDWR, 0) // lets it end
		require.NoError(t, err)
		defer f.Close()
		<-removed
	}
}
