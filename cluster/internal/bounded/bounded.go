// Package bounded bounds the sizes of the responses of an API server, and of each event of a watch.
// client-go reads them into memory as they come. Redirects are not followed.
package bounded

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
)

const (
	// maxBody is the maximum size of a response, without compression. A node with a thousand pods has
	// lists of 20 MB.
	maxBody = 128 << 20
	// maxError is the maximum size of a response with an error. Errors are kept, one for each object
	// that cannot be read.
	maxError = 1 << 20
	// maxEvent is the maximum size of an event of a watch in JSON. apimachinery has the same maximum
	// for events in protobuf (NewDecoder in runtime/serializer/streaming).
	maxEvent = 16 << 20
)

// ErrTooLarge is the error of a response that is larger than any that an agent needs.
var ErrTooLarge = errors.New("the response of the API server is too large")

// Transport returns a transport whose responses are bounded.
func Transport(rt http.RoundTripper) http.RoundTripper { return &transport{rt} }

type transport struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest {
		// Without it the client does not follow: it would send the credentials of the node elsewhere.
		resp.Header.Del("Location")
	}
	limit := maxBody
	if resp.StatusCode >= http.StatusBadRequest {
		limit = maxError
	}
	switch _, is := resp.Body.(*body); {
	case is || resp.StatusCode == http.StatusSwitchingProtocols:
	case IsWatch(r) && resp.StatusCode == http.StatusOK:
		if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "application/vnd.kubernetes.protobuf" {
			resp.Body = &body{resp.Body, &events{}}
		}
	case resp.ContentLength > int64(limit):
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%w: status %d with %d bytes, more than %d", ErrTooLarge, resp.StatusCode, resp.ContentLength, limit)
	default:
		resp.Body = &body{resp.Body, &size{limit: limit}}
	}
	return resp, nil
}

// WrappedRoundTripper returns the transport that is wrapped, for client-go.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// IsWatch reports whether the request is for a watch.
func IsWatch(r *http.Request) bool {
	watch, _ := strconv.ParseBool(r.URL.Query().Get("watch"))
	return watch
}

// body is the body of a response with a bound.
type body struct {
	io.ReadCloser
	bound interface{ add(data []byte) error }
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if tooLarge := b.bound.add(p[:n]); tooLarge != nil {
		return 0, tooLarge
	}
	return n, err
}

// size bounds the size of all data.
type size struct{ n, limit int }

func (s *size) add(data []byte) error {
	if s.n += len(data); s.n > s.limit {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, s.limit)
	}
	return nil
}

// events bounds the size of each of a sequence of JSON objects.
type events struct {
	n, depth          int // of the present one
	inString, escaped bool
}

func (e *events) add(data []byte) error {
	for _, c := range data {
		e.n++
		switch {
		case e.escaped:
			e.escaped = false
		case e.inString:
			e.escaped, e.inString = c == '\\', c != '"'
		case c == '"':
			e.inString = true
		case c == '{' || c == '[':
			e.depth++
		case c == '}' || c == ']':
			if e.depth--; e.depth <= 0 {
				e.n, e.depth = 0, 0
			}
		}
	}
	if e.n > maxEvent {
		return fmt.Errorf("%w: an event of a watch has more than %d bytes", ErrTooLarge, maxEvent)
	}
	return nil
}
