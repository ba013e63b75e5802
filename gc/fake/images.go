package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/calls"
)

// The methods of [Images], for Fail, Hold and UntilCalled. They are about no pod.
const (
	ListImages  = "ListImages"
	RemoveImage = "RemoveImage"
	ImageFsInfo = "ImageFsInfo"
)

// Image is an image of [Images].
type Image struct {
	runtime.Image
	// Bytes is what the image takes on the disk, which may differ from its Size. Default:
	// its Size; negative: nothing.
	Bytes int64
}

// Images is a [runtime.ImageService] with a disk of a fixed size. It is safe for
// concurrent use.
type Images struct {
	calls.Log

	mu sync.Mutex
	// seq is the mark of the last list or use.
	seq              runtime.Mark
	images           map[string]Image
	used             map[string]runtime.Mark // of the last Use
	capacity, others int64
}

var _ runtime.ImageService = (*Images)(nil)

// NewImages returns a service with the images on a disk of the capacity in bytes.
func NewImages(capacity int64, images ...Image) *Images {
	s := &Images{images: map[string]Image{}, used: map[string]runtime.Mark{}, capacity: capacity}
	s.Add(images...)
	return s
}

// Add adds images, and replaces those of the same ID.
func (s *Images) Add(images ...Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range images {
		s.images[i.ID] = i
	}
	s.Changed()
}

// Use sets what uses the image. Lists that were made before are then too old to remove it.
func (s *Images) Use(id string, by ...runtime.ImageUse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	s.used[id] = s.seq
	if i, ok := s.images[id]; ok {
		i.UsedBy = by
		s.images[id] = i
	}
	s.Changed()
}

// SetOthers sets the number of bytes on the disk that are not of images.
func (s *Images) SetOthers(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = bytes
	s.Changed()
}

// SetCapacity sets the size of the disk in bytes.
func (s *Images) SetCapacity(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capacity = bytes
}

// IDs returns the IDs of the images, sorted.
func (s *Images) IDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.images))
}

// Available returns the number of bytes that are left on the disk.
func (s *Images) Available() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.available()
}

func (s *Images) available() int64 {
	left := s.capacity - s.others
	for _, i := range s.images {
		switch {
		case i.Bytes > 0:
			left -= i.Bytes
		case i.Bytes == 0:
			left -= i.Size
		}
	}
	return max(left, 0)
}

// ListImages implements [runtime.ImageService].
func (s *Images) ListImages(ctx context.Context) (runtime.ImageList, error) {
	var list runtime.ImageList
	err := s.Do(ctx, calls.Call{Method: ListImages}, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seq++
		list.Mark = s.seq
		for _, id := range slices.Sorted(maps.Keys(s.images)) {
			image := s.images[id].Image
			image.UsedBy = slices.Clone(image.UsedBy)
			list.Images = append(list.Images, image)
		}
		return nil
	})
	return list, err
}

// RemoveImage implements [runtime.ImageService].
func (s *Images) RemoveImage(ctx context.Context, id string, listed runtime.Mark) error {
	return s.Do(ctx, calls.Call{Method: RemoveImage, Detail: id}, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.used[id] > listed {
			return fmt.Errorf("image %s: %w", id, runtime.ErrImageInUse)
		}
		delete(s.images, id)
		return nil
	})
}

// ImageFsInfo implements [runtime.ImageService].
func (s *Images) ImageFsInfo(ctx context.Context) (runtime.ImageFsInfo, error) {
	var info runtime.ImageFsInfo
	err := s.Do(ctx, calls.Call{Method: ImageFsInfo}, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		left := s.available()
		info.Images = runtime.FsUsage{Mountpoint: "/images", CapacityBytes: s.capacity, AvailableBytes: left,
			UsedBytes: s.capacity - s.others - left}
		return nil
	})
	return info, err
}

// The methods of [ImageCollector], beside Run. They are about no pod.
const (
	GarbageCollect     = "GarbageCollect"
	DeleteUnusedImages = "DeleteUnusedImages"
	Preview            = "Preview"
)

// ImageCollector is a [gc.ImageCollector] that records its calls and removes nothing. It is
// safe for concurrent use; the zero value is ready.
type ImageCollector struct {
	calls.Log
	ran atomic.Bool
}

var _ gc.ImageCollector = (*ImageCollector)(nil)

// Run implements [gc.ImageCollector].
func (m *ImageCollector) Run(ctx context.Context) error {
	return m.Do(ctx, calls.Call{Method: Run}, func() error {
		if !m.ran.CompareAndSwap(false, true) {
			return fmt.Errorf("gc/fake: images: %w", runtime.ErrAlreadyRunning)
		}
		<-ctx.Done()
		return nil
	})
}

// GarbageCollect implements [gc.ImageCollector].
func (m *ImageCollector) GarbageCollect(ctx context.Context) error {
	return m.Do(ctx, calls.Call{Method: GarbageCollect}, nil)
}

// DeleteUnusedImages implements [gc.ImageCollector].
func (m *ImageCollector) DeleteUnusedImages(ctx context.Context) error {
	return m.Do(ctx, calls.Call{Method: DeleteUnusedImages}, nil)
}

// Preview implements [gc.ImageCollector]. There are no images.
func (m *ImageCollector) Preview(ctx context.Context, goal gc.ImageGoal) (gc.ImagePreview, error) {
	return gc.ImagePreview{Input: gc.ImageInput{Goal: goal}}, m.Do(ctx, calls.Call{Method: Preview}, nil)
}
