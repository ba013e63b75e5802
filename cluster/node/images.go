package node

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// maxNames is the number of names of one image that are reported (kubelet:
// MaxNamesPerImageInNodeStatus).
const maxNames = 5

// ImageList is an [Images]: the largest images of a runtime. It lists them only when
// they may have changed, and every 5 minutes. The methods are safe for concurrent use.
type ImageList struct {
	list func(ctx context.Context) ([]runtime.Image, error)
	max  int

	mu     sync.Mutex
	stale  bool
	listed time.Time
	images []v1.ContainerImage
}

var _ Images = (*ImageList)(nil)

// imagesPeriod is the longest time between two lists.
const imagesPeriod = 5 * time.Minute

// NewImageList returns the images of the runtime, at most so many: 0 is 50, kubelet's
// nodeStatusMaxImages, and a negative number is no limit.
func NewImageList(service runtime.ImageService, limit int) *ImageList {
	if limit == 0 {
		limit = 50
	}
	return &ImageList{max: limit, stale: true, list: func(ctx context.Context) ([]runtime.Image, error) {
		l, err := service.ListImages(ctx)
		return l.Images, err
	}}
}

// Changed has the images listed the next time: one was pulled or removed.
func (l *ImageList) Changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = true
}

// NodeImages implements [Images].
func (l *ImageList) NodeImages(ctx context.Context) ([]v1.ContainerImage, error) {
	l.mu.Lock()
	if !l.stale && time.Since(l.listed) < imagesPeriod {
		defer l.mu.Unlock()
		return l.images, nil
	}
	l.stale = false
	l.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := l.list(ctx)

	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.stale = true
		return nil, err
	}
	l.images, l.listed = reportedImages(found, l.max), time.Now()
	return l.images, nil
}

// reportedImages returns the largest images, the largest first, with digests before tags. The
// order is always the same, so that it is no change.
func reportedImages(found []runtime.Image, limit int) []v1.ContainerImage {
	found = slices.Clone(found)
	slices.SortFunc(found, func(a, b runtime.Image) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.ID, b.ID))
	})
	if limit >= 0 && len(found) > limit {
		found = found[:limit]
	}
	out := make([]v1.ContainerImage, 0, len(found))
	for _, i := range found {
		names := slices.Concat(slices.Sorted(slices.Values(i.Digests)), slices.Sorted(slices.Values(i.Tags)))
		out = append(out, v1.ContainerImage{Names: names[:min(len(names), maxNames)], SizeBytes: i.Size})
	}
	return out
}
