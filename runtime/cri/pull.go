package cri

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// waitError is the reason why a container that should run does not.
type waitError struct {
	// reason and message are for the container's status.
	reason, message string
	// retryAfter is the time until the next attempt; 0 leaves it to the caller.
	retryAfter time.Duration
	// backingOff means that there was no attempt, and so no failure.
	backingOff bool
	err        error
}

func (e *waitError) Error() string {
	var c *callError
	if errors.As(e.err, &c) { // podSync.start adds the pod and the container
		return e.reason + ": " + c.call + ": " + e.message
	}
	return e.reason + ": " + e.message
}

func (e *waitError) Unwrap() error { return e.err }

// waitFor returns a waitError with the runtime's message.
func waitFor(why string, err error) *waitError {
	return &waitError{reason: why, message: reason(err), err: err}
}

// imageVolumes returns the volumes of the type image that the container mounts.
func imageVolumes(pod *v1.Pod, c *v1.Container) []*v1.Volume {
	var list []*v1.Volume
	var mounted map[string]struct{} // by name; nil before it is needed
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Image == nil {
			continue
		}
		if mounted == nil {
			mounted = make(map[string]struct{}, len(c.VolumeMounts))
			for i := range c.VolumeMounts {
				mounted[c.VolumeMounts[i].Name] = struct{}{}
			}
		}
		if _, ok := mounted[v.Name]; ok {
			list = append(list, v)
		}
	}
	return list
}

// imageJob is a request for the image of a container.
type imageJob struct {
	request runtime.ImageRequest
	store   *imageStore
	ensure  func(context.Context, runtime.ImageRequest) (*runtime.Image, error)
	// lease keeps the image from being removed once it is found.
	lease *imageLease
}

// keyOf returns the key of an image with its pull policy, or the default policy.
func keyOf(image string, policy v1.PullPolicy) imageKey {
	return imageKey{image, podspec.PullPolicy(image, policy)}
}

// ensureImage returns the metadata of the image when it is present. The image is not removed before the lease of the
// job is closed; if it was removed before it was found, it is looked for again.
func (job *imageJob) ensureImage(ctx context.Context) (translate.Image, error) {
	for {
		image, err := job.ensure(ctx, job.request)
		if missing(err) && job.lease.lost() {
			continue // it was removed between its pull and the look at it
		}
		if err == nil && image == nil {
			err = errors.New("the request for the image has neither an image nor an error")
		}
		if err != nil {
			return translate.Image{}, waitForImage(err)
		}
		again, err := job.lease.hold(ctx, image.ID)
		if err != nil {
			return translate.Image{}, waitFor(runtime.ReasonImagePull, err)
		}
		if again {
			continue
		}
		found, err := job.store.metadata(ctx, image.ID)
		if err != nil {
			return translate.Image{}, waitFor(runtime.ReasonImageInspect, err)
		}
		return found, nil
	}
}

// waitForImage returns the waitError of an image that cannot be used.
func waitForImage(err error) *waitError {
	var e *runtime.ImageError
	if !errors.As(err, &e) {
		return waitFor(runtime.ReasonImagePull, err)
	}
	return &waitError{reason: e.Reason, message: e.Message, retryAfter: e.RetryAfter, backingOff: e.BackingOff,
		err: e.Err}
}

// missing reports whether an image that was pulled does not exist.
func missing(err error) bool {
	var e *runtime.ImageError
	return errors.As(err, &e) && e.Reason == runtime.ReasonImageInspect && errors.Is(e.Err, runtime.ErrNotFound)
}

// imageStore is the [runtime.ImageStore] of one pod and one image.
type imageStore struct {
	r     *Runtime
	about string
	// want is the image as the spec names it.
	want    string
	sandbox *criv1.PodSandboxConfig
	// found is the image that was found last.
	found *criv1.Image
}

// storeError has the runtime's message as its text, for the status of the pod.
type storeError struct{ error }

func (e storeError) Error() string { return reason(e.error) }
func (e storeError) Unwrap() error { return e.error }

func (s *imageStore) spec(name string) *criv1.ImageSpec {
	return &criv1.ImageSpec{Image: name, UserSpecifiedImage: s.want, Annotations: s.sandbox.GetAnnotations()}
}

// Find implements [runtime.ImageStore].
func (s *imageStore) Find(ctx context.Context, name string) (*runtime.Image, error) {
	resp, err := call(ctx, s.r, "ImageStatus", s.about, 0, s.r.is.ImageStatus,
		&criv1.ImageStatusRequest{Image: s.spec(name)})
	if err = unlessNotFound(err); err != nil {
		return nil, storeError{err}
	}
	found := resp.GetImage()
	if found == nil {
		return nil, nil
	}
	s.found = found
	return &runtime.Image{
		ID: found.GetId(), Tags: found.GetRepoTags(), Digests: found.GetRepoDigests(), Size: s.r.sizeOf(found),
		Pinned: found.GetPinned(),
	}, nil
}

// Pull implements [runtime.ImageStore].
func (s *imageStore) Pull(ctx context.Context, name string, auth *runtime.ImageAuth) (ref string, err error) {
	req := &criv1.PullImageRequest{Image: s.spec(name), SandboxConfig: s.sandbox}
	if auth != nil {
		req.Auth = &criv1.AuthConfig{Username: auth.Username, Password: auth.Password}
	}
	resp, err := call(ctx, s.r, "PullImage", s.about, -1, s.r.is.PullImage, req)
	if err != nil {
		return "", storeError{err}
	}
	if name, err := podspec.ParseImageName(name); err == nil {
		s.r.uses.pulled(name.FullName)
	}
	return resp.GetImageRef(), nil
}

// Removed implements [runtime.ImageStore].
func (s *imageStore) Removed(fullName string) time.Time { return s.r.uses.removedAt(fullName) }

// metadata returns what containers need of the image with the ID.
func (s *imageStore) metadata(ctx context.Context, id string) (translate.Image, error) {
	if s.found.GetId() != id { // another request has found it
		image, err := s.Find(ctx, id)
		if err != nil {
			return translate.Image{}, err
		}
		if image == nil {
			return translate.Image{}, fmt.Errorf("image %q has no ID %q: %w", s.want, id, runtime.ErrNotFound)
		}
	}
	return translate.ImageOf(s.found.GetId(), s.found), nil
}

// images are the images of the containers that one sync starts. They are fetched in
// parallel.
type images struct {
	jobs   map[imageKey]*imageResult
	leases []*imageLease
	wg     sync.WaitGroup
}

// release lets the images be removed again. All jobs have ended.
func (i *images) release() {
	for _, l := range i.leases {
		l.close()
	}
}

type imageKey struct {
	image  string
	policy v1.PullPolicy
}

// imageResult is the result of an imageJob; it may be read when done is closed.
type imageResult struct {
	done  chan struct{}
	image translate.Image
	err   error
}

// get waits for an image.
func (i *images) get(ctx context.Context, key imageKey) (translate.Image, error) {
	job := i.jobs[key]
	select {
	case <-job.done:
		return job.image, job.err
	case <-ctx.Done():
		return translate.Image{}, waitFor(runtime.ReasonImagePull, flow.Ended(ctx))
	}
}
