package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

var _ runtime.ImageService = (*Runtime)(nil)

// ListImages implements [runtime.ImageService] with the calls ListImages, ListContainers
// and Status. The image of sandboxes counts as pinned. Runtimes pin it themselves since
// containerd 1.7 and CRI-O 1.24; of others it is in the details of Status.
//
// Containers are those of CRI, with kubelet's labels or without. What other clients of
// the container engine use is not known, as with kubelet.
func (r *Runtime) ListImages(ctx context.Context) (runtime.ImageList, error) {
	list := runtime.ImageList{Mark: r.uses.listing()}
	var (
		found      []*criv1.Image
		containers []*criv1.Container
		sandbox    string
	)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		resp, err := call(gctx, r, "ListImages", "", 0, r.is.ListImages, &criv1.ListImagesRequest{})
		found = resp.GetImages()
		return err
	})
	g.Go(func() (err error) {
		containers, err = fetch(r, true, func() ([]*criv1.Container, error) {
			return streamed(gctx, r, "StreamContainers", r.rs.StreamContainers, &criv1.StreamContainersRequest{},
				(*criv1.StreamContainersResponse).GetContainers)
		}, func() ([]*criv1.Container, error) {
			resp, err := call(gctx, r, "ListContainers", "", 0, r.rs.ListContainers, &criv1.ListContainersRequest{})
			return resp.GetContainers(), err
		})
		return err
	})
	g.Go(func() (err error) {
		sandbox, err = r.sandboxImage(gctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return runtime.ImageList{}, err
	}
	list.Images = assembleImages(found, containers, sandbox)
	if r.hostProcesses.Load() {
		for i := range list.Images {
			list.Images[i].Size = 0
		}
	}
	r.uses.listed(&list)
	return list, nil
}

// sizeOf returns the size of an image. In CRI none is 0, also if it takes no space.
func (r *Runtime) sizeOf(image *criv1.Image) int64 {
	if r.hostProcesses.Load() {
		return 0
	}
	return int64(image.GetSize())
}

// assembleImages returns each image once, with its containers. A container and the image
// of sandboxes name an image by ID, tag or digest, which depends on the runtime.
func assembleImages(found []*criv1.Image, containers []*criv1.Container, sandbox string) []runtime.Image {
	images := make([]runtime.Image, 0, len(found))
	index := make(map[string]int, 3*len(found)) // by each name
	for _, i := range found {
		at, known := index[i.GetId()]
		if !known {
			at = len(images)
			images = append(images, runtime.Image{ID: i.GetId()})
			index[i.GetId()] = at
		}
		image := &images[at]
		image.Size = max(image.Size, int64(i.GetSize()))
		image.Pinned = image.Pinned || i.GetPinned()
		image.Tags = append(image.Tags, i.GetRepoTags()...)
		image.Digests = append(image.Digests, i.GetRepoDigests()...)
		for _, name := range slices.Concat(i.GetRepoTags(), i.GetRepoDigests()) {
			index[name] = at
		}
	}
	uses := imageUsers{images: images, index: index, last: make([]int, len(images))}
	for n, c := range containers {
		ref, _ := crimeta.RefFromLabels(c.GetLabels()) // of another client: it has none
		use := runtime.ImageUse{Pod: ref, Container: containerName(c.GetLabels(), c.GetMetadata()),
			State: containerState(c.GetState())}
		for _, name := range []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()} {
			uses.add(name, n+1, use)
		}
		for name := range strings.SplitSeq(c.GetAnnotations()[crimeta.AnnotationImageVolumes], ",") {
			uses.add(name, n+1, use)
		}
	}
	if at, ok := index[sandbox]; ok {
		images[at].Pinned = true
	}
	return images
}

// maxImageUses is the number of uses of all images up to which each one is kept: many times
// what a node has. A container can name any number of images, in a few bytes each.
const maxImageUses = 500_000

// imageUsers adds the containers to the images that they use.
type imageUsers struct {
	images []runtime.Image
	// index has the images by each of their names.
	index map[string]int
	// last has the number of the container that was added last to each image. Numbers begin
	// with 1.
	last []int
	uses int
}

// add adds a container, which has a number, to the image with the name, once. If there are too
// many uses, an image keeps one: that by a container that runs, if there is one.
func (u *imageUsers) add(name string, container int, use runtime.ImageUse) {
	at, ok := u.index[name]
	if !ok || u.last[at] == container {
		return
	}
	u.last[at] = container
	image := &u.images[at]
	if u.uses >= maxImageUses && len(image.UsedBy) > 0 {
		if use.State == runtime.ContainerRunning {
			image.UsedBy[0] = use
		}
		return
	}
	image.UsedBy = append(image.UsedBy, use)
	u.uses++
}

// sandboxImage returns the image of sandboxes, or "" if the runtime does not report it. It is
// where kubeadm looks for it: containerd before 2.0 and CRI-O have it there.
func (r *Runtime) sandboxImage(ctx context.Context) (string, error) {
	resp, err := call(ctx, r, "Status", "", 0, r.rs.Status, &criv1.StatusRequest{Verbose: true})
	if err != nil {
		return "", err
	}
	var config struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if err := json.Unmarshal([]byte(resp.GetInfo()["config"]), &config); err != nil {
		return "", nil // CRI leaves the content to the runtime
	}
	return config.SandboxImage, nil
}

// RemoveImage implements [runtime.ImageService].
func (r *Runtime) RemoveImage(ctx context.Context, id string, listed runtime.Mark) error {
	return r.uses.remove(ctx, id, listed, func() error {
		_, err := call(ctx, r, "RemoveImage", "image "+id, 0, r.is.RemoveImage,
			&criv1.RemoveImageRequest{Image: &criv1.ImageSpec{Image: id}})
		return unlessNotFound(err)
	})
}

// ImageFsInfo implements [runtime.ImageService]. CRI has the place of the file system, and
// this machine its size. Of several file systems of one kind the first one counts, as in
// kubelet.
func (r *Runtime) ImageFsInfo(ctx context.Context) (runtime.ImageFsInfo, error) {
	resp, err := call(ctx, r, "ImageFsInfo", "", 0, r.is.ImageFsInfo, &criv1.ImageFsInfoRequest{})
	if err != nil {
		return runtime.ImageFsInfo{}, err
	}
	if len(resp.GetImageFilesystems()) == 0 {
		return runtime.ImageFsInfo{}, errors.New("the runtime reports no file system of images")
	}
	var info runtime.ImageFsInfo
	if info.Images, err = fsUsage(resp.GetImageFilesystems()[0]); err != nil {
		return runtime.ImageFsInfo{}, fmt.Errorf("file system of images: %w", err)
	}
	if list := resp.GetContainerFilesystems(); len(list) > 0 {
		containers, err := fsUsage(list[0])
		if err != nil {
			return runtime.ImageFsInfo{}, fmt.Errorf("file system of containers: %w", err)
		}
		info.Containers = &containers
	}
	return info, nil
}

// fsUsage returns the usage of a file system of the runtime.
func fsUsage(fs *criv1.FilesystemUsage) (runtime.FsUsage, error) {
	usage := runtime.FsUsage{Mountpoint: fs.GetFsId().GetMountpoint(), UsedBytes: int64(fs.GetUsedBytes().GetValue())}
	if usage.Mountpoint == "" {
		return usage, errors.New("the runtime does not tell where it is")
	}
	size, err := safefile.DiskSize(usage.Mountpoint)
	usage.CapacityBytes, usage.AvailableBytes = int64(size.Capacity), int64(size.Available)
	return usage, err
}
