package runtime

import (
	"context"
	"time"
)

// ImageService is an optional interface of a [Runtime] that keeps images, see [Optional].
// A collector of images uses it. Without it, images are neither listed nor removed.
//
// A runtime that implements it never removes an image that a pod uses, nor one that a
// pod is about to use: from the moment when SyncPod has found or pulled the image of a
// container until the container exists, RemoveImage refuses that image. A SyncPod with
// an image that is being removed waits for the end of that removal alone, and pulls the
// image again.
//
// The methods are safe for concurrent use, also with SyncPod.
type ImageService interface {
	// ListImages returns all images with what uses them. A list is complete, or an error.
	ListImages(ctx context.Context) (ImageList, error)
	// RemoveImage removes the image with the ID, under all its names. It returns nil if
	// there is no such image, and an error that wraps [ErrImageInUse], without a change, if
	// the image may have come into use since the list with the mark was made.
	RemoveImage(ctx context.Context, id string, listed Mark) error
	// ImageFsInfo returns the usage of the file system of the images.
	ImageFsInfo(ctx context.Context) (ImageFsInfo, error)
}

// ImageList is the result of [ImageService.ListImages].
type ImageList struct {
	// Mark orders the list and the starts of containers. It was drawn before the uses were
	// read.
	Mark Mark
	// Images are in no order. They are shared with no one.
	Images []Image
}

// Image is an image that a runtime keeps.
type Image struct {
	// ID is the ID of the runtime. Each image of a list has another one.
	ID string
	// Tags and Digests are its names, as in "registry.example/app:1" and
	// "registry.example/app@sha256:…". Both can be empty.
	Tags, Digests []string
	// Size is the size in bytes that the runtime reports. Images share layers, and some
	// runtimes report the compressed size, so a removal frees more or less than that.
	Size int64
	// Pinned means that the image must stay: the runtime or its administrator has pinned
	// it, or sandboxes are made from it.
	Pinned bool
	// UsedBy has the containers with this image, in any state, dead ones included.
	UsedBy []ImageUse
	// LastUsed is the time of the last start or end of use that this runtime has seen in
	// this process. It is zero if it has seen none.
	LastUsed time.Time
}

// Name returns a name of the image for people: its first tag, else its first digest, else
// its ID.
func (i *Image) Name() string {
	switch {
	case len(i.Tags) > 0:
		return i.Tags[0]
	case len(i.Digests) > 0:
		return i.Digests[0]
	default:
		return i.ID
	}
}

// ImageUse is a use of an image.
type ImageUse struct {
	// Pod is zero if a container belongs to no pod.
	Pod PodRef
	// Container is the name of the container. It is empty if a pod is being started that
	// will use the image.
	Container string
	// State is the state of the container. It is empty if Container is.
	State ContainerState
}

// ImageFsInfo is the result of [ImageService.ImageFsInfo].
type ImageFsInfo struct {
	// Images is the file system with the layers of images.
	Images FsUsage
	// Containers is the file system with the writable layers of containers. It differs
	// from Images if the runtime has a split image file system (KEP-4191). Nil if the
	// runtime does not report it.
	Containers *FsUsage
}

// FsUsage is the usage of a file system.
type FsUsage struct {
	// Mountpoint is a directory in the file system.
	Mountpoint string
	// CapacityBytes is the size of the file system, and AvailableBytes what an unprivileged
	// user can still write, as with statfs(2).
	CapacityBytes, AvailableBytes int64
	// UsedBytes is what the runtime's files take, as the runtime reports it. It may be some
	// seconds old.
	UsedBytes int64
}

// DiskUsageReporter is an optional interface of a [Runtime], see [Optional]. Without it, the
// writable layers of containers do not count for limits of ephemeral storage.
type DiskUsageReporter interface {
	// ContainerDiskUsage returns the size of the writable layer of a running container, in
	// bytes. It may be some seconds old.
	ContainerDiskUsage(ctx context.Context, id ContainerID) (int64, error)
}
