package volume

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Image is the [Plugin] for the files of an image. The runtime pulls and mounts the image, so
// there is nothing to set up. A runtime that cannot fails the containers that mount it.
type Image struct{}

var _ Plugin = Image{}

// Name returns kubelet's name of the plugin.
func (Image) Name() string { return "kubernetes.io/image" }

// Supports reports whether the volume is an image.
func (Image) Supports(v *v1.Volume) bool { return v.Image != nil }

// SetUp returns a volume without a path.
func (Image) SetUp(context.Context, SetUpRequest) (runtime.Volume, error) {
	return runtime.Volume{ReadOnly: true}, nil
}

// TearDown does nothing.
func (Image) TearDown(context.Context, TearDownRequest) error { return nil }
