package images

import (
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// failures has the images whose last pull has failed, by pod and image.
type failures struct {
	backoff flow.Backoff

	mu    sync.Mutex
	last  map[failureKey]failure
	swept time.Time
}

type failureKey struct {
	pod   types.UID
	image string
}

type failure struct {
	// count is the number of failures in a row.
	count int
	// until is the end of the back-off.
	until   time.Time
	message string
}

// of returns the last failure.
func (f *failures) of(pod types.UID, image string) failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[failureKey{pod, image}]
}

func (f *failures) forget(pod types.UID, image string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.last, failureKey{pod, image})
}

// add records a failure, and returns the time until the next attempt. Twice the longest back-off after the end of a
// back-off, the count begins anew, and the entry is dropped.
func (f *failures) add(pod types.UID, image, message string) time.Duration {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		f.last, f.swept = map[failureKey]failure{}, now
	}
	if now.Sub(f.swept) > 2*f.backoff.Max {
		for key, last := range f.last {
			if now.Sub(last.until) > 2*f.backoff.Max {
				delete(f.last, key)
			}
		}
		f.swept = now
	}
	last := f.last[failureKey{pod, image}]
	if now.Sub(last.until) > 2*f.backoff.Max {
		last.count = 0
	}
	last.count++
	after := f.backoff.After(last.count)
	last.until, last.message = now.Add(after), message
	f.last[failureKey{pod, image}] = last
	return after
}

// backingOff returns an error during the back-off of the image.
func (a *attempt) backingOff() error {
	last := a.p.failures.of(a.ref.UID, a.Image)
	wait := time.Until(last.until)
	if wait <= 0 {
		return nil
	}
	message := fmt.Sprintf("Back-off pulling image %q", a.Image)
	a.event(v1.EventTypeNormal, "BackOff", message)
	return &runtime.ImageError{Reason: runtime.ReasonImagePullBackOff, Message: message + ": " + last.message,
		RetryAfter: wait, BackingOff: true}
}

// failed starts or extends the back-off of the image.
func (a *attempt) failed(err error) error {
	e := judge(a.Image, err)
	a.event(v1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", a.Image, err))
	e.RetryAfter = a.p.failures.add(a.ref.UID, a.Image, e.Error())
	a.decided(runtime.Record{Kind: runtime.KindBackOff, Reason: runtime.ReasonImagePullBackOff, Duration: e.RetryAfter})
	return e
}

// judge returns the waiting reason of a failed pull. By CRI, two reasons are the prefix of the message (cri-api,
// pkg/errors).
func judge(image string, err error) *runtime.ImageError {
	message := err.Error()
	for reason, words := range map[string]string{
		runtime.ReasonRegistryUnavailable: "the registry is unavailable",
		runtime.ReasonSignatureValidation: "the signature validation failed",
	} {
		if rest, ok := strings.CutPrefix(message, reason); ok {
			return &runtime.ImageError{Reason: reason, Message: fmt.Sprintf("image pull failed for %s because %s%s",
				image, words, rest), Err: err}
		}
	}
	return &runtime.ImageError{Reason: runtime.ReasonImagePull, Message: message, Err: err}
}
