package events

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/internal/flow"
)

const (
	// writeTimeout is the time limit of one request.
	writeTimeout = 30 * time.Second
	// maxTries is how often an event is tried that the API server answers with an error. It is
	// client-go's.
	maxTries = 12
	// maxAge is how long an event is tried while the API server does not answer. It is the
	// default of kube-apiserver's --event-ttl.
	maxAge = time.Hour
)

// deliver writes the Event object, and tries again while that may help.
func (r *Recorder) deliver(ctx context.Context, event *v1.Event, patch []byte) {
	for tries := 1; ; tries++ {
		ended := outage.Ended(r.client)
		written, err := r.write(ctx, event, patch)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			r.correlator.UpdateState(written)
			if tries > 1 {
				r.log.Info("Events are written to the API server again", "tries", tries, "dropped", r.Dropped())
			}
			return
		case !mayPass(err, tries, time.Since(event.LastTimestamp.Time)):
			r.log.Error(err, "Event is not written: the API server does not accept it", "namespace", event.Namespace,
				"kind", event.InvolvedObject.Kind, "object", event.InvolvedObject.Name, "reason", event.Reason,
				"tries", tries)
			return
		case tries == 1:
			r.log.Error(err, "Cannot write an event to the API server; events wait, and are tried again",
				"namespace", event.Namespace,
				"kind", event.InvolvedObject.Kind, "object", event.InvolvedObject.Name, "reason", event.Reason)
		}
		delay := flow.Backoff{Min: time.Second, Max: 10 * time.Second}.After(tries)
		if outage.Wait(ctx, delay-rand.N(delay/2), ended) != nil {
			return
		}
	}
}

// write makes one try.
func (r *Recorder) write(ctx context.Context, event *v1.Event, patch []byte) (*v1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	events := r.client.CoreV1().Events(event.Namespace)
	if event.Count > 1 {
		written, err := events.PatchWithEventNamespaceWithContext(ctx, event, patch)
		if !apierrors.IsNotFound(err) {
			return written, err
		}
	}
	fresh := *event
	fresh.ResourceVersion = ""
	written, err := events.CreateWithEventNamespaceWithContext(ctx, &fresh)
	if apierrors.IsAlreadyExists(err) { // an earlier try has succeeded, without an answer
		return &fresh, nil
	}
	return written, err
}

// mayPass reports whether another try may succeed, after so many tries of an event of that
// age.
func mayPass(err error, tries int, age time.Duration) bool {
	if wrong := (*rest.RequestConstructionError)(nil); errors.As(err, &wrong) {
		return false
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return age < maxAge
	}
	switch code := status.Status().Code; {
	case apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return false
	case code == http.StatusUnauthorized, code == http.StatusRequestTimeout, code == http.StatusTooManyRequests,
		code >= http.StatusInternalServerError:
		return tries < maxTries
	default:
		return false
	}
}
