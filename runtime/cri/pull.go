package cri

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
)

// Waiting reasons of containers without an image.
const (
	reasonInvalidImageName    = "InvalidImageName"
	reasonImageInspect        = "ImageInspectError"
	reasonImageNeverPull      = "ErrImageNeverPull"
	reasonImagePull           = "ErrImagePull"
	reasonImagePullBackOff    = "ImagePullBackOff"
	reasonRegistryUnavailable = "RegistryUnavailable"
	reasonSignatureValidation = "SignatureValidationFailed"
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

// puller bounds the number of concurrent pulls and their rate.
type puller struct {
	// slots has the bound as its capacity; nil means no bound.
	slots chan struct{}
	// rate bounds how many begin in a second; nil means no bound. kubelet fails a pull above it,
	// so that its image is in back-off although its registry is well.
	rate *rate.Limiter
}

func newPuller(opts *Options) *puller {
	n := opts.MaxParallelPulls
	if opts.SerializePulls {
		n = 1
	}
	p := &puller{}
	if opts.PullQPS > 0 && !math.IsInf(opts.PullQPS, 1) { // nor not a number
		p.rate = rate.NewLimiter(rate.Limit(opts.PullQPS), max(opts.PullBurst, 1))
	}
	if n > 0 {
		p.slots = make(chan struct{}, n)
	}
	return p
}

// acquire waits for a slot, and until the rate allows a pull. release must be called.
func (p *puller) acquire(ctx context.Context) (release func(), err error) {
	if p.rate != nil {
		token := p.rate.Reserve() // Wait fails at once if ctx has a deadline that is too early
		if !flow.Sleep(ctx, token.Delay()) {
			token.Cancel()
			return nil, flow.Ended(ctx)
		}
	}
	if p.slots == nil {
		return func() {}, nil
	}
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }, nil
	case <-ctx.Done():
		return nil, flow.Ended(ctx)
	}
}

// imageJob is a request for the image of a container.
type imageJob struct {
	pod runtime.PodRef
	// events emits events about the container, or about the pod if a volume needs the image.
	events emitter
	// want is the image as the spec names it.
	want string
	// policy is never empty.
	policy  v1.PullPolicy
	keys    func() (keyring, error)
	sandbox *criv1.PodSandboxConfig
	// lease keeps the image from being removed once it is found.
	lease *imageLease
}

// keyOf returns the key of an image with its pull policy, or the default policy (API
// reference, imagePullPolicy).
func keyOf(image string, policy v1.PullPolicy) imageKey {
	if policy != "" {
		return imageKey{image, policy}
	}
	if _, tagged, err := parseImage(image); err == nil && strings.HasSuffix(tagged, ":latest") {
		return imageKey{image, v1.PullAlways}
	}
	return imageKey{image, v1.PullIfNotPresent}
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

// parseImage returns the parsed image, and the reference for the runtime: the image as
// written. Both have the tag "latest" if the image has neither tag nor digest. The runtime
// resolves short names.
func parseImage(image string) (ref text.ImageRef, tagged string, err error) {
	ref, err = text.ParseImageRef(image)
	if err != nil {
		return text.ImageRef{}, "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	if ref.Tag == "" && ref.Digest == "" {
		ref.Tag = "latest"
		image += ":latest"
	}
	return ref, image, nil
}

// nameOf returns the full name of the image, with its digest or, if it has none, its tag.
func nameOf(ref text.ImageRef) string {
	if ref.Digest != "" {
		return ref.Repository + "@" + ref.Digest
	}
	return ref.Repository + ":" + ref.Tag
}

// pullReason completes the record of the decision to pull an image.
func (r *Runtime) pullReason(pull runtime.Record, policy v1.PullPolicy, name string) runtime.Record {
	pull.Reason = runtime.ReasonImageAbsent
	if policy == v1.PullAlways {
		pull.Reason = runtime.ReasonPullAlways
	} else if at, removed := r.uses.removedAt(name); removed {
		pull.Reason, pull.Duration = runtime.ReasonImageRemoved, time.Since(at)
	}
	return pull
}

// ensureImage pulls the image if its policy requires it, and returns its metadata. An
// image that is present costs one call. The image is not removed before the lease of the
// job is closed; if it was removed before it was found, it is looked for again.
func (r *Runtime) ensureImage(ctx context.Context, job *imageJob) (translate.Image, error) {
	for {
		id, image, err := r.fetchImage(ctx, job)
		if errors.Is(err, errImageGone) && job.lease.lost() {
			continue // it was removed between its pull and the look at it
		}
		if err != nil {
			return translate.Image{}, err
		}
		again, err := job.lease.hold(ctx, id)
		if err != nil {
			return translate.Image{}, waitFor(reasonImagePull, err)
		}
		if !again {
			return image, nil
		}
	}
}

// errImageGone means that an image that was pulled is not there.
var errImageGone = errors.New("does not exist after its pull")

// fetchImage pulls the image if its policy requires it, and returns its ID and metadata.
func (r *Runtime) fetchImage(ctx context.Context, job *imageJob) (id string, _ translate.Image, _ error) {
	about := "pod " + job.pod.String()
	ref, image, err := parseImage(job.want)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", job.want, err)
		job.events.warning("InspectFailed", message)
		return "", translate.Image{}, &waitError{reason: reasonInvalidImageName, message: message}
	}
	spec := &criv1.ImageSpec{Image: image, UserSpecifiedImage: job.want, Annotations: job.sandbox.GetAnnotations()}

	if job.policy != v1.PullAlways {
		got, err := r.imageStatus(ctx, about, spec)
		if err != nil {
			message := fmt.Sprintf("Failed to inspect image %q: %s", job.want, reason(err))
			job.events.failure(ctx, "InspectFailed", message)
			return "", translate.Image{}, &waitError{reason: reasonImageInspect, message: message, err: err}
		}
		if got != nil {
			job.events.normal("Pulled", fmt.Sprintf("Container image %q already present on machine", job.want))
			return got.GetId(), translate.ImageOf(got.GetId(), got), nil
		}
		if job.policy == v1.PullNever {
			message := fmt.Sprintf("Container image %q is not present with pull policy of Never", job.want)
			job.events.warning("ErrImageNeverPull", message)
			return "", translate.Image{}, &waitError{reason: reasonImageNeverPull, message: message}
		}
	}
	if err := r.pullBackoff(job); err != nil {
		return "", translate.Image{}, err
	}

	job.events.normal("Pulling", fmt.Sprintf("Pulling image %q", job.want))
	pull := runtime.Record{Kind: runtime.KindPullImage, Message: job.want}
	job.events.decided(r.pullReason(pull, job.policy, nameOf(ref)))
	queued := time.Now()
	release, err := r.pulls.acquire(ctx)
	if err != nil {
		return "", translate.Image{}, waitFor(reasonImagePull, fmt.Errorf("%s: waiting to pull image %q: %w", about, job.want, err))
	}
	began := time.Now()
	next := func() (err error) {
		release()
		if release, err = r.pulls.acquire(ctx); err != nil {
			release = func() {}
		}
		return err
	}
	pulledRef, err := r.pull(ctx, about, spec, ref.Repository, job, next)
	release()
	job.events.done(ctx, pull, queued, err)
	if err != nil {
		return "", translate.Image{}, r.pullFailed(ctx, job, err)
	}
	r.uses.pulled(nameOf(ref))
	took, whole := time.Since(began), time.Since(queued)
	r.pods.with(job.pod.UID, func(p *podMemory) { delete(p.pulls, job.want) })

	got, err := r.imageStatus(ctx, about, &criv1.ImageSpec{Image: pulledRef})
	if err == nil && got == nil {
		err = fmt.Errorf("%s: image %q %w", about, job.want, errImageGone)
	}
	if err != nil {
		return "", translate.Image{}, waitFor(reasonImageInspect, err)
	}
	r.metrics.Call("ImagePulled", func(m Metrics) {
		m.ImagePulled(ImagePull{Pod: job.pod, Image: job.want, Size: got.GetSize(), Took: took, Waited: whole - took})
	})
	job.events.normal("Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
		job.want, took.Truncate(time.Millisecond), whole.Truncate(time.Millisecond), got.GetSize()))
	return got.GetId(), translate.ImageOf(pulledRef, got), nil
}

// imageStatus returns the image, or nil if it does not exist.
func (r *Runtime) imageStatus(ctx context.Context, about string, spec *criv1.ImageSpec) (*criv1.Image, error) {
	resp, err := call(ctx, r, "ImageStatus", about, 0, r.is.ImageStatus, &criv1.ImageStatusRequest{Image: spec})
	return resp.GetImage(), unlessNotFound(err)
}

// pull tries the credentials for the image, those of the pod before those of the node, or
// pulls without one if there are none, and returns the runtime's reference to the image. It calls next
// between two tries, so that other pods have their turn.
func (r *Runtime) pull(ctx context.Context, about string, spec *criv1.ImageSpec, repository string, job *imageJob, next func() error) (string, error) {
	keys, keysErr := job.keys()
	nodeKeys, err := nodeKeyring(r.opts.DockerConfig)
	if err != nil { // not in the status of the pod: that is for its owner
		r.opts.Logger.Error(err, "Credentials of the node cannot be used", "path", r.opts.DockerConfig)
	}
	auths := different(keys.lookup(repository), nodeKeys.lookup(repository))
	if len(auths) == 0 {
		auths = []*criv1.AuthConfig{nil}
	}
	var errs []error
	texts := map[string]bool{} // most tries fail for the same reason
	for i, auth := range auths {
		if i > 0 {
			if err := next(); err != nil {
				errs = append(errs, err)
				break
			}
		}
		// Only ctx bounds a pull.
		resp, err := call(ctx, r, "PullImage", about, -1, r.is.PullImage, &criv1.PullImageRequest{Image: spec, Auth: auth, SandboxConfig: job.sandbox})
		if err == nil {
			return resp.GetImageRef(), nil
		}
		if text := err.Error(); !texts[text] {
			texts[text] = true
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if keysErr != nil {
		errs = append(errs, keysErr)
	}
	if len(errs) == 1 {
		return "", errs[0]
	}
	return "", errors.Join(errs...)
}

// different returns the first credentials of those of the pod and of those of the node that differ from each
// other, maxTries of each at most: those of a pod keep no other from being tried.
func different(lists ...[]*criv1.AuthConfig) (out []*criv1.AuthConfig) {
	seen := map[[2]string]bool{}
	for _, list := range lists {
		tries := 0
		for _, auth := range list {
			key := [2]string{auth.GetUsername(), auth.GetPassword()}
			if seen[key] || tries == maxTries {
				continue
			}
			seen[key] = true
			tries++
			out = append(out, auth)
		}
	}
	return out
}

// pullBackoff returns an error during the back-off of the image.
func (r *Runtime) pullBackoff(job *imageJob) error {
	var last pullFailure
	r.pods.with(job.pod.UID, func(p *podMemory) { last = p.pulls[job.want] })
	wait := time.Until(last.until)
	if wait <= 0 {
		return nil
	}
	message := fmt.Sprintf("Back-off pulling image %q", job.want)
	job.events.normal("BackOff", message)
	return &waitError{reason: reasonImagePullBackOff, message: message + ": " + last.message, retryAfter: wait, backingOff: true}
}

// pullFailed starts or extends the back-off of an image.
func (r *Runtime) pullFailed(ctx context.Context, job *imageJob, err error) error {
	if ctx.Err() != nil { // cancelled, which is no failure of the image
		return waitFor(reasonImagePull, err)
	}
	e := judgePull(job.want, err)
	job.events.warning("Failed", fmt.Sprintf("Failed to pull image %q: %s", job.want, reason(err)))
	r.pods.with(job.pod.UID, func(p *podMemory) {
		failed := p.pulls[job.want]
		now := time.Now()
		if now.Sub(failed.until) > 2*r.opts.PullBackoffMax {
			failed.failures = 0
		}
		failed.failures++
		e.retryAfter = flow.Backoff{Min: r.opts.PullBackoffInitial, Max: r.opts.PullBackoffMax}.After(failed.failures)
		failed.until, failed.message = now.Add(e.retryAfter), e.reason+": "+e.message
		p.pulls[job.want] = failed
	})
	job.events.decided(runtime.Record{Kind: runtime.KindBackOff, Reason: reasonImagePullBackOff, Duration: e.retryAfter})
	return e
}

// judgePull returns the waiting reason of a failed pull. By CRI, two reasons are the
// prefix of the message (cri-api, pkg/errors).
func judgePull(image string, err error) *waitError {
	message := reason(err)
	for why, words := range map[string]string{
		reasonRegistryUnavailable: "the registry is unavailable",
		reasonSignatureValidation: "the signature validation failed",
	} {
		if rest, ok := strings.CutPrefix(message, why); ok {
			return &waitError{reason: why, message: fmt.Sprintf("image pull failed for %s because %s%s", image, words, rest), err: err}
		}
	}
	return &waitError{reason: reasonImagePull, message: message, err: err}
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
		return translate.Image{}, waitFor(reasonImagePull, flow.Ended(ctx))
	}
}
