package runtime

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// ImageRequest is a request for an image that a container or a volume of a pod needs.
type ImageRequest struct {
	// Image is the image as the spec names it.
	Image string
	// Policy is the pull policy of the spec. If empty, it is the default of the API, see [podspec.PullPolicy].
	Policy v1.PullPolicy
	// Container is the name of the container. It is empty for an image of a volume.
	Container string
	// HostProcesses is [Features].HostProcesses: the image is a name only.
	HostProcesses bool
	// Store has the images of the runtime. It is used by one goroutine at a time, and not after the request has been
	// answered, except for a pull that others share.
	Store ImageStore
}

// ImageStore is the access of a pod to the images of a runtime. The text of an error is the message of the runtime, for
// users. The errors of Find and Pull wrap those of [Runtime].
type ImageStore interface {
	// Find returns the image with the name, tag or digest included, or nil if the runtime does not have it. UsedBy and
	// LastUsed are not set.
	Find(ctx context.Context, name string) (*Image, error)
	// Pull pulls the image with the credential, or without one if it is nil, and returns a name by which Find finds it.
	// Only ctx bounds it.
	Pull(ctx context.Context, name string, auth *ImageAuth) (ref string, err error)
	// Removed returns when this process has removed the image with the full name. It is the zero time if it has not, or
	// the image was pulled again.
	Removed(fullName string) time.Time
}

// ImageAuth is a credential for a registry.
type ImageAuth struct {
	Username, Password string
}

// ImageError is why a container has no image. Its text is the reason and the message.
type ImageError struct {
	// Reason and Message are those of the waiting container, such as "ErrImagePull".
	Reason, Message string
	// RetryAfter is the time until the next attempt; 0 leaves it to the caller.
	RetryAfter time.Duration
	// BackingOff means that nothing was tried, since the time of an earlier attempt has not passed.
	BackingOff bool
	// Err is the cause. It may be nil.
	Err error
}

func (e *ImageError) Error() string { return e.Reason + ": " + e.Message }

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.Err }

// EnsureImage finds the image in the store, or pulls it without a credential if its policy requires that. It is what a
// runtime does without a [PodSync].EnsureImage.
func EnsureImage(ctx context.Context, req ImageRequest) (*Image, error) {
	name, err := podspec.ParseImageName(req.Image)
	if err != nil {
		return nil, &ImageError{Reason: ReasonInvalidImageName,
			Message: fmt.Sprintf("Failed to apply default image tag %q: %v", req.Image, err)}
	}
	policy := podspec.PullPolicy(req.Image, req.Policy)
	if policy != v1.PullAlways {
		image, err := req.Store.Find(ctx, name.Name)
		if err != nil {
			return nil, &ImageError{Reason: ReasonImageInspect, Message: fmt.Sprintf("Failed to inspect image %q: %v",
				req.Image, err), Err: err}
		}
		if image != nil {
			return image, nil
		}
		if policy == v1.PullNever {
			return nil, &ImageError{Reason: ReasonImageNeverPull, Message: fmt.Sprintf("Container image %q is not "+
				"present with pull policy of Never", req.Image)}
		}
	}
	ref, err := req.Store.Pull(ctx, name.Name, nil)
	if err != nil {
		return nil, &ImageError{Reason: ReasonImagePull, Message: err.Error(), Err: err}
	}
	return req.FindPulled(ctx, ref)
}

// FindPulled returns the image that was pulled for the request. The error is an [*ImageError]; it wraps [ErrNotFound]
// if the image does not exist: it may have been removed already.
func (req ImageRequest) FindPulled(ctx context.Context, ref string) (*Image, error) {
	image, err := req.Store.Find(ctx, ref)
	if err == nil && image == nil {
		err = fmt.Errorf("image %q does not exist after its pull: %w", req.Image, ErrNotFound)
	}
	if err != nil {
		return nil, &ImageError{Reason: ReasonImageInspect, Message: err.Error(), Err: err}
	}
	return image, nil
}

// The reasons of containers that wait for their images.
const (
	ReasonInvalidImageName    = "InvalidImageName"
	ReasonImageInspect        = "ImageInspectError"
	ReasonImageNeverPull      = "ErrImageNeverPull"
	ReasonImagePull           = "ErrImagePull"
	ReasonImagePullBackOff    = "ImagePullBackOff"
	ReasonRegistryUnavailable = "RegistryUnavailable"
	ReasonSignatureValidation = "SignatureValidationFailed"
)
