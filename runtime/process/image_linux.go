package process

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// image is the record of an image that was pulled or removed. The image itself is the
// host, whatever its name is.
type image struct {
	PulledAt int64 `json:"pulledAt,omitempty"` // Unix nanoseconds
	// Removed means that the image does not exist until it is pulled again.
	Removed bool `json:"removed,omitempty"`
}

func (s *Server) imagesFile() string { return filepath.Join(s.opts.Dir, "images.json") }

func (s *Server) recoverImages() error {
	err := supervise.ReadFile(s.imagesFile(), &s.images)
	var bad *supervise.BadFileError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &bad):
		s.discard(s.imagesFile(), err)
		s.images = map[string]*image{}
		return nil
	}
	for name, i := range s.images {
		if i == nil {
			delete(s.images, name)
		}
	}
	return err
}

// canonical adds the tag "latest" to a name without tag and digest.
func canonical(name string) string {
	if name == "" || strings.Contains(name, "@") || strings.Contains(name[strings.LastIndexByte(name, '/')+1:], ":") {
		return name
	}
	return name + ":latest"
}

// imageSize is the reported size of an image in bytes. An image takes no space, but
// kubelet and other clients refuse the size 0.
const imageSize = 1

// described returns an image as a message of CRI.
func (s *Server) described(name string) *criv1.Image {
	// Pinned: there is nothing to gain by its removal.
	i := &criv1.Image{Id: name, Size: imageSize, Pinned: true, Spec: &criv1.ImageSpec{Image: name},
		Uid: &criv1.Int64Value{Value: int64(s.host.UID)}}
	if strings.Contains(name, "@") {
		i.RepoDigests = []string{name}
	} else {
		i.RepoTags = []string{name}
	}
	return i
}

// ListImages implements CRI. It returns the images that were pulled.
func (s *imageService) ListImages(_ context.Context, req *criv1.ListImagesRequest) (*criv1.ListImagesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := canonical(req.GetFilter().GetImage().GetImage())
	resp := &criv1.ListImagesResponse{}
	for name, i := range s.images {
		if !i.Removed && (want == "" || want == name) {
			resp.Images = append(resp.Images, s.described(name))
		}
	}
	return resp, nil
}

// ImageStatus implements CRI. Every image exists except those that were removed.
func (s *imageService) ImageStatus(_ context.Context,
	req *criv1.ImageStatusRequest) (*criv1.ImageStatusResponse, error) {
	name := canonical(req.GetImage().GetImage())
	if name == "" {
		return nil, status.Error(codes.InvalidArgument, "the name of the image is empty")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &criv1.ImageStatusResponse{}
	if i := s.images[name]; i == nil || !i.Removed {
		resp.Image = s.described(name)
	}
	if req.GetVerbose() {
		resp.Info = info(map[string]any{"note": "the image is the host, whatever its name is"})
	}
	return resp, nil
}

// PullImage implements CRI. It succeeds at once.
func (s *imageService) PullImage(_ context.Context, req *criv1.PullImageRequest) (*criv1.PullImageResponse, error) {
	name := canonical(req.GetImage().GetImage())
	if name == "" {
		return nil, status.Error(codes.InvalidArgument, "the name of the image is empty")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.images[name]; i != nil && !i.Removed {
		return &criv1.PullImageResponse{ImageRef: name}, nil
	}
	s.rememberLocked(name, &image{PulledAt: time.Now().UnixNano()})
	return &criv1.PullImageResponse{ImageRef: name}, nil
}

// RemoveImage implements CRI.
func (s *imageService) RemoveImage(_ context.Context,
	req *criv1.RemoveImageRequest) (*criv1.RemoveImageResponse, error) {
	name := canonical(req.GetImage().GetImage())
	if name == "" {
		return nil, status.Error(codes.InvalidArgument, "the name of the image is empty")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.images[name]; i == nil || !i.Removed {
		s.rememberLocked(name, &image{Removed: true})
	}
	return &criv1.RemoveImageResponse{}, nil
}

// maxImages is the maximum number of records. When it is reached, any one is dropped.
const maxImages = 10_000

// rememberLocked records an image that was pulled or removed. If that fails, as on a full disk, it
// is logged: the next server does not know of it, and every image exists.
func (s *Server) rememberLocked(name string, i *image) {
	if len(s.images) >= maxImages {
		for other := range s.images {
			delete(s.images, other)
			break
		}
	}
	s.images[name] = i
	if err := supervise.WriteFile(s.imagesFile(), s.images); err != nil {
		s.opts.Logger.Error(err, "Cannot record an image that was pulled or removed; it is forgotten when the "+
			"server ends", "image", name)
	}
}

// ImageFsInfo implements CRI. The file system is that of the server's directory. Images
// take no space in it.
func (s *imageService) ImageFsInfo(context.Context, *criv1.ImageFsInfoRequest) (*criv1.ImageFsInfoResponse, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.opts.Dir, &st); err != nil {
		return nil, status.Errorf(codes.Internal, "%s: %v", s.opts.Dir, err)
	}
	use := &criv1.FilesystemUsage{
		Timestamp: time.Now().UnixNano(), FsId: &criv1.FilesystemIdentifier{Mountpoint: s.opts.Dir},
		UsedBytes: &criv1.UInt64Value{}, InodesUsed: &criv1.UInt64Value{},
	}
	return &criv1.ImageFsInfoResponse{ImageFilesystems: []*criv1.FilesystemUsage{use},
		ContainerFilesystems: []*criv1.FilesystemUsage{use}}, nil
}
