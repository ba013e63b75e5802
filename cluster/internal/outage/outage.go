// Package outage signals to all parts of a node that the API server answers again. With it they can
// have long back-offs: it is enough that one of them tries every few seconds.
package outage

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/watchlist"
)

// maxFailing bounds the set of requests that have failed. A full set is emptied: a few requests are
// enough to notice the end of an outage.
const maxFailing = 256

// The signal is sent at most burst times at once, and else once in a period: a server that refuses every
// other request would end all back-offs for ever.
const (
	burst  = 3
	period = time.Minute
)

// Signal is sent when a request succeeds after one with the same method and path has failed; a
// list and a watch are different requests. A request that always fails, for example because it is
// forbidden, neither sends the signal nor prevents it. A signal that comes too soon after others is
// delayed, by a minute at most. The zero value is ready. The methods are safe for concurrent use.
type Signal struct {
	mu      sync.Mutex
	failing map[request]struct{}
	// ended is closed by the next signal; nil if Ended was not called since the last one.
	ended chan struct{}
	// limit is nil until the first signal.
	limit *rate.Limiter
	// delayed is set while a timer runs that sends the signal.
	delayed bool
}

type request struct {
	method, path string
	watch        bool
}

func requestOf(r *http.Request) request {
	watch, _ := strconv.ParseBool(r.URL.Query().Get("watch"))
	return request{r.Method, r.URL.Path, watch}
}

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
	switch key := requestOf(r); {
	case err == nil && !isFailure(resp.StatusCode):
		t.signal.succeeded(key)
	case context.Cause(r.Context()) != context.Canceled: // not given up by the client
		t.signal.failed(key)
	}
	return resp, err
}

// WrappedRoundTripper returns the transport that is wrapped, for client-go.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// isFailure reports whether a response with the code may be that of an outage. 404 is not: it is the
// normal response for an object that does not exist.
func isFailure(code int) bool { return code >= http.StatusBadRequest && code != http.StatusNotFound }

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
	s.send(time.Now())
}

// send sends the signal, now or when it may be sent. mu is held.
func (s *Signal) send(now time.Time) {
	if s.ended == nil || s.delayed {
		return
	}
	if s.limit == nil {
		s.limit = rate.NewLimiter(rate.Every(period), burst)
	}
	wait := s.limit.ReserveN(now, 1).DelayFrom(now)
	if wait == 0 {
		s.end()
		return
	}
	s.delayed = true
	time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.delayed = false
		s.end()
	})
}

// end closes the channel of Ended. mu is held.
func (s *Signal) end() {
	if s.ended != nil {
		close(s.ended)
		s.ended = nil
	}
}

// Client returns the client, with the signal for [Ended]. The client must use a transport of
// [Signal.Transport].
func (s *Signal) Client(client kubernetes.Interface) kubernetes.Interface {
	return signalled{client, s}
}

type signalled struct {
	kubernetes.Interface
	signal *Signal
}

// IsWatchListSemanticsUnSupported implements an optional interface of client-go's reflector. Fake
// clients have it, because their watches do not send initial events.
func (c signalled) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(c.Interface)
}

// Ended returns a channel that is closed by the next signal of the client. The channel is nil if the
// client has no signal. Call Ended before a request that may fail: otherwise a signal between the
// failure and the call is missed.
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
	return code < http.StatusInternalServerError && code != http.StatusTooManyRequests &&
		code != http.StatusRequestTimeout
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
