package cri_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// podWithImages has a container "a" that mounts image "data:1", and a volume with image
// "other:1" that nothing mounts.
func podWithImages() *v1.Pod {
	pod := podOf("a")
	pod.Spec.Volumes = []v1.Volume{
		{Name: "data", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data:1"}}},
		{Name: "other", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "other:1"}}},
	}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"},
		{Name: "data", MountPath: "/part", SubPath: "in/it"}}
	return pod
}

func withImageVolumes(req *runtime.PodSync) {
	req.Volumes = map[string]runtime.Volume{"data": {ReadOnly: true}, "other": {ReadOnly: true}}
}

// The images of volumes that a container mounts are pulled like its own, and the runtime is
// told to mount them.
func TestImageVolumes(t *testing.T) {
	svc := newService(t, "app:1")
	s := newSyncer(t, svc.client(cri.Options{}), podWithImages())
	s.more = withImageVolumes
	_, err := s.sync()
	require.NoError(t, err)
	assert.Contains(t, svc.calls(true), "PullImage data:1")
	assert.NotContains(t, svc.calls(true), "PullImage other:1")
	var mounts []*criv1.Mount
	for _, m := range svc.status("a").Mounts {
		if m.Image != nil {
			mounts = append(mounts, m)
		}
	}
	require.Len(t, mounts, 2)
	image := &criv1.ImageSpec{Image: mounts[0].Image.Image, UserSpecifiedImage: "data:1"}
	assert.Equal(t, "data:1", svc.nameOf(image.Image)[len("sha256:"):])
	assert.True(t, proto.Equal(&criv1.Mount{ContainerPath: "/data", Image: image, Readonly: true}, mounts[0]),
		"%v", mounts[0])
	assert.True(t, proto.Equal(&criv1.Mount{ContainerPath: "/part", Image: image, ImageSubPath: "in/it",
		Readonly: true}, mounts[1]), "%v", mounts[1])
}

// A container waits for the image of a volume as for its own.
func TestImageVolumeThatCannotBePulled(t *testing.T) {
	svc := newService(t, "app:1")
	svc.Inject(fake.Fault{Call: "PullImage", Err: errors.New("no such manifest")})
	s := newSyncer(t, svc.client(cri.Options{}), podWithImages())
	s.more = withImageVolumes
	res, err := s.sync()
	require.Error(t, err)
	assert.Equal(t, "ErrImagePull", res.Waiting["a"].Reason)
	assert.Contains(t, res.Waiting["a"].Message, "no such manifest")
	assert.Nil(t, svc.newest("a"))
}

// An image that is mounted is used by the container that mounts it.
func TestImageVolumesAreUsed(t *testing.T) {
	svc := newService(t, "app:1")
	rt := svc.client(cri.Options{})
	s := newSyncer(t, rt, podWithImages())
	s.more = withImageVolumes
	_, err := s.sync()
	require.NoError(t, err)
	list, err := rt.ListImages(t.Context())
	require.NoError(t, err)
	used := map[string]string{}
	for _, image := range list.Images {
		for _, use := range image.UsedBy {
			used[image.Name()] = use.Container
		}
	}
	assert.Equal(t, map[string]string{"app:1": "a", "data:1": "a"}, used)
}
