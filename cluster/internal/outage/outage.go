// Package outage tells all parts of a node at once that the API server answers again. So each
// part may repeat what has failed seldom: it is enough that one of them tries every few seconds.
package outage

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/watchlist"
)

// maxFailing is the number of requests that are remembered because they have failed. When there
// are more, the older ones are forgotten: a few are enough to notice the end of an outage.
const maxFailing = 256

// Signal is sent when a request succeeds that has failed before. A request is its method and
// its path, so that one that always fails, as one that is forbidden, neither sends the signal nor
// keeps it from being sent. The zero value is ready. The methods are safe for concurrent use.
type Signal struct {
	mu      sync.Mutex
	failing map[request]struct{}
	// ended is closed by the next signal; nil if nobody waits.
	ended chan struct{}
}

type request struct{ method, path string }

// Ended returns a channel that is closed by the next signal.
func (s *Signal) Ended() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = make(chan struct{})
	}
	return s.ended
}

// Transport returns a transport whose responses send the signal.
func (s *Signal) Transport(rt http.RoundTripper) http.RoundTripper { return &transport{rt, s} }

type transport struct {
	http.RoundTripper
	signal *Signal
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	switch key := (request{r.Method, r.URL.Path}); {
	case err == nil && !failed(resp.StatusCode):
		t.signal.succeeded(key)
	case context.Cause(r.Context()) != context.Canceled: // not given up by the client
		t.signal.failed(key)
	}
	return resp, err
}

// WrappedRoundTripper returns the transport that is wrapped, for client-go.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// failed reports whether a response with the code may be that of an outage. That something does
// not exist is none.
func failed(code int) bool { return code >= http.StatusBadRequest && code != http.StatusNotFound }

func (s *Signal) failed(key request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing == nil || len(s.failing) >= maxFailing {
		s.failing = map[request]struct{}{}
	}
	s.failing[key] = struct{}{}
}

func (s *Signal) succeeded(key request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.failing[key]; !ok {
		return
	}
	delete(s.failing, key)
	if s.ended != nil {
		close(s.ended)
		s.ended = nil
	}
}

// Client returns the client with the signal, for [Ended]. Its transport is to be one of the
// signal.
func (s *Signal) Client(client kubernetes.Interface) kubernetes.Interface {
	return signalled{client, s}
}

type signalled struct {
	kubernetes.Interface
	signal *Signal
}

// IsWatchListSemanticsUnSupported passes on what client-go's reflector asks a client: fake ones
// cannot begin a watch with a list.
func (c signalled) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(c.Interface)
}

// Ended returns a channel that is closed by the next signal of the client. It is nil if the
// client has none. It is to be called before a request that may fail, so that a signal between
// the failure and the wait is not missed.
func Ended(client kubernetes.Interface) <-chan struct{} {
	if c, ok := client.(signalled); ok {
		return c.signal.Ended()
	}
	return nil
}

// Answered reports whether the error is the API server's answer to the request. It is not if there
// was no answer, or if the answer is that the server cannot answer now: the request may have been
// carried out then, and may succeed later.
func Answered(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code < http.StatusInternalServerError && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

// Wait waits for the duration, or until ended is closed. It returns the cause of ctx if that
// ends before.
func Wait(ctx context.Context, d time.Duration, ended <-chan struct{}) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
