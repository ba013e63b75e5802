package fake

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Image is an image that the runtime holds.
type Image struct {
	// Name of the image. Without tag or digest it gets the tag "latest".
	Name string
	// UID and Username are the user that its containers run as. Default: root.
	UID      *int64
	Username string
	// Size in bytes. Default: 1 MiB.
	Size uint64
	// Pinned images are not to be removed by clients. The runtime itself removes them.
	Pinned bool
}

// AddImage adds an image, and replaces one of the same name.
func (r *Runtime) AddImage(img Image) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.addImage(img)
}

// addImage is [Runtime.AddImage]; mu is held. An image can be found by its name and by
// its ID, which is derived from the name.
func (s *service) addImage(img Image) *criv1.Image {
	name := tagged(img.Name)
	sum := sha256.Sum256([]byte(name))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	repo, _, _ := strings.Cut(name, "@")
	if i := strings.LastIndexByte(repo, ':'); i > strings.LastIndexByte(repo, '/') {
		repo = repo[:i]
	}
	made := &criv1.Image{
		Id: digest, RepoTags: []string{name}, RepoDigests: []string{repo + "@" + digest},
		Size: cmp.Or(img.Size, 1<<20), Username: img.Username, Pinned: img.Pinned,
	}
	if img.UID != nil {
		made.Uid = &criv1.Int64Value{Value: *img.UID}
	}
	s.images[name], s.images[digest] = made, made
	return made
}

// findImage returns the image with the name or ID, or nil. mu is held.
func (s *service) findImage(name string) *criv1.Image {
	if img := s.images[name]; img != nil {
		return img
	}
	return s.images[tagged(name)]
}

// distinctImages returns each image once, sorted by ID. mu is held.
func (s *service) distinctImages() []*criv1.Image {
	var all []*criv1.Image
	for key, img := range s.images {
		if key == img.GetId() {
			all = append(all, img)
		}
	}
	slices.SortFunc(all, func(a, b *criv1.Image) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return all
}

// ListImages lists the images.
func (s *imageServer) ListImages(_ context.Context, req *criv1.ListImagesRequest) (*criv1.ListImagesResponse, error) {
	return &criv1.ListImagesResponse{Images: s.s.listImages(req.GetFilter())}, nil
}

func (s *service) listImages(f *criv1.ImageFilter) []*criv1.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := f.GetImage().GetImage()
	if name == "" {
		return s.distinctImages()
	}
	if img := s.findImage(name); img != nil {
		return []*criv1.Image{img}
	}
	return nil
}

// ImageStatus describes an image. The response has none if it does not exist.
func (s *imageServer) ImageStatus(_ context.Context,
	req *criv1.ImageStatusRequest) (*criv1.ImageStatusResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	return &criv1.ImageStatusResponse{Image: s.s.findImage(req.GetImage().GetImage())}, nil
}

// PullImage succeeds for any name.
func (s *imageServer) PullImage(_ context.Context, req *criv1.PullImageRequest) (*criv1.PullImageResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	img := s.s.findImage(req.GetImage().GetImage())
	if img == nil {
		img = s.s.addImage(Image{Name: req.GetImage().GetImage()})
	}
	return &criv1.PullImageResponse{ImageRef: img.GetId()}, nil
}

// RemoveImage removes an image. It succeeds if there is none.
func (s *imageServer) RemoveImage(_ context.Context,
	req *criv1.RemoveImageRequest) (*criv1.RemoveImageResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	if img := s.s.findImage(req.GetImage().GetImage()); img != nil {
		for key, other := range s.s.images {
			if other == img {
				delete(s.s.images, key)
			}
		}
	}
	return &criv1.RemoveImageResponse{}, nil
}

// ImageFsInfo reports the sum of the image sizes.
func (s *imageServer) ImageFsInfo(context.Context, *criv1.ImageFsInfoRequest) (*criv1.ImageFsInfoResponse, error) {
	return &criv1.ImageFsInfoResponse{ImageFilesystems: []*criv1.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &criv1.FilesystemIdentifier{Mountpoint: imageFs},
		UsedBytes: &criv1.UInt64Value{Value: s.s.imageBytes()}, InodesUsed: &criv1.UInt64Value{},
	}}}, nil
}

// imageFs is the directory that CRI clients get. It does not exist.
const imageFs = "/fake"

// imageBytes returns the sum of the image sizes.
func (s *service) imageBytes() (sum uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, img := range s.images {
		if key == img.GetId() {
			sum += img.GetSize()
		}
	}
	return sum
}

// ImageFsInfo implements [runtime.ImageService] in place of the client, which would look
// for the file system on this machine. The file system has the size of
// [Options].ImageFsBytes, and holds the images and nothing else.
func (r *Runtime) ImageFsInfo(ctx context.Context) (runtime.ImageFsInfo, error) {
	_, is := r.Clients()
	if _, err := is.ImageFsInfo(ctx, &criv1.ImageFsInfoRequest{}); err != nil { // for its faults
		return runtime.ImageFsInfo{}, err
	}
	used, capacity := int64(r.s.imageBytes()), cmp.Or(r.s.opts.ImageFsBytes, 1<<40)
	return runtime.ImageFsInfo{Images: runtime.FsUsage{
		Mountpoint: imageFs, CapacityBytes: capacity, AvailableBytes: max(capacity-used, 0), UsedBytes: used,
	}}, nil
}
