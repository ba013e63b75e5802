package gc

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Base is a [Collector] that removes nothing. Embed it in implementations, so that methods
// added later do not break them.
type Base struct{}

var _ Collector = Base{}

// Run implements [Collector]. It waits until ctx ends.
func (Base) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Kick implements [Collector].
func (Base) Kick() {}

// CollectPod implements [Collector].
func (Base) CollectPod(*runtime.PodStatus) {}

// DeleteUnused implements [Collector]. It removes nothing.
func (Base) DeleteUnused(context.Context) error { return nil }

// Preview implements [Collector]. Its error wraps [errors.ErrUnsupported].
func (Base) Preview(context.Context) (Preview, error) {
	return Preview{}, fmt.Errorf("gc: a preview of a collection: %w", errors.ErrUnsupported)
}

// Changed implements [Collector]. It does nothing.
func (Base) Changed() {}

// ImageBase is an [ImageCollector] that removes nothing. Embed it in implementations, so that
// methods added later do not break them.
type ImageBase struct{}

var _ ImageCollector = ImageBase{}

// Run implements [ImageCollector]. It waits until ctx ends.
func (ImageBase) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// GarbageCollect implements [ImageCollector].
func (ImageBase) GarbageCollect(context.Context) error { return nil }

// DeleteUnusedImages implements [ImageCollector].
func (ImageBase) DeleteUnusedImages(context.Context) error { return nil }

// Preview implements [ImageCollector]. Its error wraps [errors.ErrUnsupported].
func (ImageBase) Preview(context.Context, ImageGoal) (ImagePreview, error) {
	return ImagePreview{}, fmt.Errorf("gc: a preview of the collection of images: %w", errors.ErrUnsupported)
}
