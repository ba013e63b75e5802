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
		return &criv1.Container{State: criv1.ContainerState_CONTAINER_EXITED,
			Annotations: map[string]string{crimeta.AnnotationImageVolumes: names}}
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
			assert.True(t, image.UsedBy[0].State == runtime.ContainerRunning ||
				image.UsedBy[len(image.UsedBy)-1].State == runtime.ContainerRunning)
		}
		uses += len(image.UsedBy)
	}
	assert.LessOrEqual(t, uses, maxImageUses+len(images))
}

// statuses is a runtime with a status of containers.
type statuses struct {
	criv1.RuntimeServiceClient
	status func() *criv1.ContainerStatus
}

func (l statuses) ContainerStatus(_ context.Context, _ *criv1.ContainerStatusRequest,
	_ ...grpc.CallOption) (*criv1.ContainerStatusResponse, error) {
	return &criv1.ContainerStatusResponse{Status: l.status()}, nil
}

// Messages are kept in the status of a pod and in its back-offs, and are written to the log.
func TestMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("é", 8<<20)
	err := wrapCall("PullImage", "pod", status.Error(codes.Unknown, long), nil)
	assert.Less(t, len(err.Error()), 2*maxMessage)
	assert.Less(t, len(storeError{err}.Error()), 2*maxMessage)
	s := statusOf(runtime.ContainerID{}, "", &criv1.ContainerStatus{State: criv1.ContainerState_CONTAINER_EXITED,
		Reason: long, Message: long}, &crimeta.Record{})
	assert.Less(t, len(s.Reason), 2*maxMessage)
	assert.Less(t, len(s.Message), 2*maxMessage)
	assert.Equal(t, "short", short("short"))
}

// A runtime may report a container as exited that runs. Lists tell.
func TestContainerThatHasNotExited(t *testing.T) {
	state := criv1.ContainerState_CONTAINER_EXITED
	rt := New(statuses{status: func() *criv1.ContainerStatus { return &criv1.ContainerStatus{State: state} }}, nil,
		Options{})
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
		crimeta.LabelPodUID: "u1", crimeta.LabelPodName: "web", crimeta.LabelPodNamespace: "default",
		crimeta.LabelContainerName: "a",
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
