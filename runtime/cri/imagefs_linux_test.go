package cri_test

import (
	"context"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// fileSystems answers ImageFsInfo.
type fileSystems struct {
	criv1.ImageServiceClient
	resp *criv1.ImageFsInfoResponse
}

func (f fileSystems) ImageFsInfo(context.Context, *criv1.ImageFsInfoRequest,
	...grpc.CallOption) (*criv1.ImageFsInfoResponse, error) {
	return f.resp, nil
}

// The runtime tells where its file systems are, and the machine how large. Images and
// containers can be apart (KEP-4191).
func TestImageFsInfo(t *testing.T) {
	at := func(dir string, used uint64) []*criv1.FilesystemUsage {
		return []*criv1.FilesystemUsage{{FsId: &criv1.FilesystemIdentifier{Mountpoint: dir},
			UsedBytes: &criv1.UInt64Value{Value: used}}}
	}
	rs, is := fake.New(fake.Options{}).Clients()
	info := func(resp *criv1.ImageFsInfoResponse) (got any, err error) {
		return cri.New(rs, fileSystems{is, resp}, cri.Options{}).ImageFsInfo(t.Context())
	}
	images, containers := t.TempDir(), t.TempDir()
	r := cri.New(rs, fileSystems{is, &criv1.ImageFsInfoResponse{
		ImageFilesystems: append(at(images, 7), at("/not/counted", 1)...), ContainerFilesystems: at(containers, 9),
	}}, cri.Options{})
	got, err := r.ImageFsInfo(t.Context())
	require.NoError(t, err)
	assert.Equal(t, images, got.Images.Mountpoint)
	assert.EqualValues(t, 7, got.Images.UsedBytes)
	assert.Positive(t, got.Images.CapacityBytes)
	assert.Less(t, got.Images.AvailableBytes, got.Images.CapacityBytes)
	require.NotNil(t, got.Containers)
	assert.Equal(t, containers, got.Containers.Mountpoint)

	_, err = info(&criv1.ImageFsInfoResponse{})
	assert.ErrorContains(t, err, "the runtime reports no file system of images")
	_, err = info(&criv1.ImageFsInfoResponse{ImageFilesystems: at("", 0)})
	assert.ErrorContains(t, err, "the runtime does not tell where it is")
	_, err = info(&criv1.ImageFsInfoResponse{ImageFilesystems: at("/no/such/directory", 0)})
	assert.ErrorIs(t, err, fs.ErrNotExist)
}
