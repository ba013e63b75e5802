package images

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/node/images/credentials"
	"github.com/kubeletkit/kubeletkit/node/images/records"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Options are the settings of a [Puller]. The zero value is valid.
type Options struct {
	// Credentials finds the credentials for an image. They are tried in their order. Default: [credentials.Secrets],
	// the pull secrets of the pod.
	Credentials credentials.Source
	// Records has which pods may use an image that is present (KEP-2535). Default: every pod may use every image.
	Records *records.Records

	// Serial pulls one image at a time (kubelet's serializeImagePulls). Otherwise MaxParallel is the number of
	// concurrent pulls (maxParallelImagePulls); 0 means no bound.
	Serial      bool
	MaxParallel int
	// QPS is the number of pulls that may begin in a second, and Burst the number that may begin at once (kubelet's
	// registryPullQPS and registryBurst). Others wait; in kubelet they fail. Default: no limit.
	QPS   float64
	Burst int
	// BackoffInitial and BackoffMax are the delay after the first failed pull, and the longest delay. It doubles with
	// each failure of the same image in the same pod. Default: 10 s and 300 s, as in kubelet.
	BackoffInitial, BackoffMax time.Duration

	// Observer receives the events of pulls, decisions to pull and their outcomes as records, and the measurements
	// [Pull], [Ensured], [Verified] and [Recorded]. Its Logger has what no request returns as an error.
	runtime.Observer
}

// Puller is the default [Manager]. Make one with [New]. It is safe for concurrent use.
type Puller struct {
	opts  Options
	limit limit
	// pulls are those in progress, by the name of the image.
	pulls    flow.Shares[pulled]
	failures failures
}

var _ Manager = (*Puller)(nil)

// New returns a Puller. It makes no call.
func New(opts Options) (*Puller, error) {
	opts.Observer, _ = opts.Queued()
	if opts.MaxParallel < 0 || opts.QPS < 0 || opts.Burst < 0 {
		return nil, fmt.Errorf("images: MaxParallel %d, QPS %v and Burst %d: must not be negative", opts.MaxParallel,
			opts.QPS, opts.Burst)
	}
	if opts.Credentials == nil {
		opts.Credentials = credentials.Secrets{}
	}
	if opts.BackoffInitial <= 0 {
		opts.BackoffInitial = 10 * time.Second
	}
	if opts.BackoffMax <= 0 {
		opts.BackoffMax = 300 * time.Second
	}
	opts.BackoffInitial = min(opts.BackoffInitial, opts.BackoffMax)
	return &Puller{
		opts: opts, limit: newLimit(&opts),
		failures: failures{backoff: flow.Backoff{Min: opts.BackoffInitial, Max: opts.BackoffMax}},
	}, nil
}

// pulled is the result of a pull, which several requests can share.
type pulled struct {
	// key identifies the credentials. It is empty if the pull was not begun by a request.
	key   string
	image *runtime.Image
	took  time.Duration
}

// Ensure implements [Manager].
func (p *Puller) Ensure(ctx context.Context, req Request) (*runtime.Image, error) {
	if req.Pod == nil || req.Store == nil {
		return nil, errors.New("images: a request needs a pod and a store")
	}
	if req.HostProcesses { // there is nothing to pull, to wait for or to report
		return runtime.EnsureImage(ctx, req.ImageRequest)
	}
	a := &attempt{p: p, Request: req, ref: runtime.RefOf(req.Pod), policy: podspec.PullPolicy(req.Image, req.Policy)}
	image, err := a.ensure(ctx)
	p.opts.Measure.Emit(Ensured{Policy: a.policy, Present: a.present, Pulled: a.required})
	return image, err
}

// Listed implements [Manager].
func (p *Puller) Listed(list runtime.ImageList) {
	if p.opts.Records != nil {
		p.opts.Records.Listed(list)
		p.recorded()
	}
}

// recorded reports how many intents and records there are.
func (p *Puller) recorded() {
	intents, records := p.opts.Records.Counts()
	p.opts.Measure.Emit(Recorded{intents, records})
}

// attempt answers one request. It is used by one goroutine.
type attempt struct {
	p *Puller
	Request
	ref    runtime.PodRef
	name   podspec.ImageName
	policy v1.PullPolicy
	// present and required are those of [Ensured].
	present, required *bool

	// found are the credentials, and foundErr why there are not more, since looked is true.
	found    []credentials.Credential
	foundErr error
	looked   bool
}

func (a *attempt) ensure(ctx context.Context) (*runtime.Image, error) {
	var err error
	if a.name, err = podspec.ParseImageName(a.Image); err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", a.Image, err)
		a.event(v1.EventTypeWarning, "InspectFailed", message)
		return nil, &runtime.ImageError{Reason: runtime.ReasonInvalidImageName, Message: message}
	}
	if image, err := a.usePresent(ctx); image != nil || err != nil {
		return image, err
	}
	a.required = new(true)
	if err := a.backingOff(); err != nil {
		return nil, err
	}
	return a.pull(ctx)
}

// usePresent returns the image if it is present and the pod may use it. If both results are nil, the image is to be
// pulled.
func (a *attempt) usePresent(ctx context.Context) (*runtime.Image, error) {
	if a.policy == v1.PullAlways {
		return nil, nil
	}
	image, err := a.Store.Find(ctx, a.name.Name)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %v", a.Image, err)
		a.failure(ctx, "InspectFailed", message)
		return nil, &runtime.ImageError{Reason: runtime.ReasonImageInspect, Message: message, Err: err}
	}
	a.present = new(image != nil)
	if image != nil {
		may, err := a.mayUse(ctx, image)
		if err != nil {
			return nil, &runtime.ImageError{Reason: runtime.ReasonImagePull, Message: err.Error(), Err: err}
		}
		if may {
			a.required = new(false)
			a.event(v1.EventTypeNormal, "Pulled", a.presentMessage())
			return image, nil
		}
	}
	if a.policy == v1.PullNever { // also if the image is present: whether it is must not be seen
		a.required = new(image != nil)
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", a.Image)
		a.event(v1.EventTypeWarning, "ErrImageNeverPull", message)
		return nil, &runtime.ImageError{Reason: runtime.ReasonImageNeverPull, Message: message}
	}
	return nil, nil
}

func (a *attempt) presentMessage() string {
	message := fmt.Sprintf("Container image %q already present on machine", a.Image)
	if a.p.opts.Records != nil {
		message += " and can be accessed by the pod"
	}
	return message
}

// mayUse reports whether the pod may use an image that is present.
func (a *attempt) mayUse(ctx context.Context, image *runtime.Image) (bool, error) {
	if a.p.opts.Records == nil {
		return true, nil
	}
	decision, err := a.p.opts.Records.Decide(a.Image, image.ID, func() ([]records.Credential, error) {
		a.lookUp(ctx)
		var list []records.Credential
		for i := range a.found {
			list = append(list, identity(&a.found[i]))
		}
		return list, nil
	})
	a.p.opts.Measure.Emit(Verified{decision})
	return decision.MayUse(), err
}

// identity returns the credential for a record.
func identity(c *credentials.Credential) records.Credential {
	var id records.Credential
	switch {
	case c == nil:
	case c.Secret != nil:
		id.Secret = &records.Secret{UID: c.Secret.UID, Namespace: c.Secret.Namespace, Name: c.Secret.Name,
			Hash: c.Hash()}
	case c.ServiceAccount != nil:
		id.ServiceAccount = &records.ServiceAccount{UID: c.ServiceAccount.UID, Namespace: c.ServiceAccount.Namespace,
			Name: c.ServiceAccount.Name}
	}
	return id
}

// lookUp finds the credentials, once.
func (a *attempt) lookUp(ctx context.Context) {
	if a.looked {
		return
	}
	a.looked = true
	found, err := a.p.opts.Credentials.Credentials(ctx, credentials.Request{Image: a.name.Repository, Pod: a.Pod,
		Secrets: a.Secrets})
	a.found = found
	var node error
	if a.foundErr, node = credentials.Split(err); node != nil && ctx.Err() == nil {
		a.p.opts.Logger.Error(node, "Credentials of the node cannot be used", "pod", a.ref, "image", a.Image)
	}
}

// key identifies the credentials that the attempt would try, without their content.
func (a *attempt) key() string {
	var b strings.Builder
	b.WriteString("credentials:")
	for i := range a.found {
		c := identity(&a.found[i])
		fmt.Fprintf(&b, "%s %v %v;", a.found[i].Hash(), c.Secret, c.ServiceAccount)
	}
	return b.String()
}

// pull pulls the image, or waits for another request that does.
func (a *attempt) pull(ctx context.Context) (*runtime.Image, error) {
	a.lookUp(ctx)
	key := a.key()
	a.event(v1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", a.Image))
	why := runtime.Record{Kind: runtime.KindPullImage, Message: a.Image}
	a.decided(a.pullReason(why))
	queued := time.Now()
	for {
		began := false
		result, err := a.p.pulls.Do(ctx, "waiting for the pull of image "+a.Image, a.name.Name,
			func(func() int) (pulled, error) {
				began = true
				return a.pullOnce(ctx, key)
			})
		if result.key == key || ctx.Err() != nil {
			return a.ended(ctx, why, result, queued, !began, err)
		}
		// It was pulled with other credentials, or was not.
		if image, err := a.usePresent(ctx); image != nil || err != nil {
			a.done(ctx, why, queued, err)
			return image, err
		}
	}
}

// pullReason completes the record of the decision to pull an image.
func (a *attempt) pullReason(r runtime.Record) runtime.Record {
	r.Reason = runtime.ReasonImageAbsent
	if a.policy == v1.PullAlways {
		r.Reason = runtime.ReasonPullAlways
	} else if a.present != nil && *a.present {
		r.Reason = runtime.ReasonImageNotPermitted
	} else if at := a.Store.Removed(a.name.FullName); !at.IsZero() {
		r.Reason, r.Duration = runtime.ReasonImageRemoved, time.Since(at)
	}
	return r
}

// ended reports the end of a pull.
func (a *attempt) ended(ctx context.Context, why runtime.Record, result pulled, queued time.Time, shared bool,
	err error) (*runtime.Image, error) {
	if err != nil && a.foundErr != nil { // that of this pod, who has not begun a shared pull
		err = errors.Join(err, a.foundErr)
	}
	a.done(ctx, why, queued, err)
	var inspect *runtime.ImageError
	switch {
	case err == nil:
	case ctx.Err() != nil: // cancelled, which is no failure of the image
		return nil, &runtime.ImageError{Reason: runtime.ReasonImagePull, Message: err.Error(), Err: err}
	case errors.As(err, &inspect): // it was pulled
		return nil, err
	default:
		return nil, a.failed(err)
	}
	a.p.failures.forget(a.ref.UID, a.Image)
	whole := time.Since(queued)
	took := min(result.took, whole) // a shared one may have begun before
	pull := Pull{Pod: a.ref, Image: a.Image, Size: result.image.Size, Took: took, Waited: whole - took, Shared: shared}
	a.p.opts.Measure.Emit(pull)
	a.event(v1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). "+
		"Image size: %v bytes.",
		a.Image, took.Truncate(time.Millisecond), whole.Truncate(time.Millisecond), result.image.Size))
	return result.image, nil
}

// pullOnce pulls the image with one credential after the other, and records with which one.
func (a *attempt) pullOnce(ctx context.Context, key string) (result pulled, _ error) {
	result.key = key
	if r := a.p.opts.Records; r != nil {
		if err := r.Intend(a.Image); err != nil {
			return result, fmt.Errorf("recording that it is pulled: %w", err)
		}
		a.p.recorded()
	}
	var t trial
	defer func() { a.recordEnd(result.image, &t) }() // also if the store panics
	err := a.tryAll(ctx, &t)
	result.took = t.took
	if err == nil {
		result.image, err = a.FindPulled(ctx, t.ref)
	}
	return result, err
}

// trial is what was done to pull an image.
type trial struct {
	// ref is the runtime's name of the image, and used the credential with which it was pulled.
	ref  string
	used *credentials.Credential
	// took is how long the calls took.
	took time.Duration
	// open means that the runtime may have the image: it was pulled, or a call was cut off.
	open bool
}

// recordEnd records which credential has pulled the image. If the image is nil, it was not pulled, or it is not known.
func (a *attempt) recordEnd(image *runtime.Image, t *trial) {
	r := a.p.opts.Records
	if r == nil {
		return
	}
	defer a.p.recorded()
	switch {
	case image == nil && t.open:
		r.Unknown(a.Image)
	case image == nil:
		r.Failed(a.Image)
	default:
		if err := r.Pulled(a.Image, image.ID, identity(t.used)); err != nil {
			a.p.opts.Logger.Error(err, "The record of a pull cannot be written; each pod needs a pull to use the image",
				"pod", a.ref, "image", a.Image)
		}
	}
}

// tryAll tries the credentials, or pulls without one if there are none. Between two tries, other pulls have their turn.
func (a *attempt) tryAll(ctx context.Context, t *trial) error {
	logins := credentials.Distinct(a.found)
	tries := make([]*credentials.Credential, 0, max(1, len(logins)))
	for i := range logins {
		tries = append(tries, &logins[i])
	}
	if len(tries) == 0 {
		tries = append(tries, nil)
	}
	var errs []error
	texts := map[string]bool{} // most tries fail for the same reason
	for _, c := range tries {
		release, err := a.p.limit.acquire(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("waiting to pull image %q: %w", a.Image, err))
			break
		}
		if err = a.try(ctx, c, t, release); err == nil {
			return nil
		}
		if text := err.Error(); !texts[text] {
			texts[text] = true
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// try pulls the image with a credential.
func (a *attempt) try(ctx context.Context, c *credentials.Credential, t *trial, release func()) (err error) {
	defer release()
	began, before := time.Now(), t.open
	t.open = true
	t.ref, err = a.Store.Pull(ctx, a.name.Name, authOf(c))
	t.took += time.Since(began)
	if err == nil {
		t.used = c
		return nil
	}
	t.open = before || cutOff(ctx, err)
	return err
}

// cutOff reports whether a pull has failed without an answer of the runtime, which may have the image.
func cutOff(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded)
}

func authOf(c *credentials.Credential) *runtime.ImageAuth {
	if c == nil {
		return nil
	}
	return &runtime.ImageAuth{Username: c.Username, Password: c.Password}
}
