package images

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Manager makes images present. It is safe for concurrent use. An implementation embeds [Base], so that methods that
// are added later do not break it.
type Manager interface {
	// Ensure returns the image when it is present and the pod may use it, and pulls it if necessary. An error that is a
	// [*runtime.ImageError] has the reason why the container waits; any other one counts as ErrImagePull.
	Ensure(ctx context.Context, req Request) (*runtime.Image, error)
	// Listed receives a complete list of the images of the runtime, soon after it was made. What is kept of images that
	// are in no list is removed.
	Listed(list runtime.ImageList)
}

// Request is a request for an image.
type Request struct {
	// Pod needs the image. It is shared and read-only.
	Pod *v1.Pod
	// Secrets are the image pull secrets of the pod.
	Secrets []v1.Secret
	runtime.ImageRequest
}

// Base is a Manager that pulls images without credentials, and as often as they are requested.
type Base struct{}

var _ Manager = Base{}

// Ensure implements [Manager].
func (Base) Ensure(ctx context.Context, req Request) (*runtime.Image, error) {
	return runtime.EnsureImage(ctx, req.ImageRequest)
}

// Listed implements [Manager].
func (Base) Listed(runtime.ImageList) {}
