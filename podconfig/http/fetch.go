package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
)

// maxRedirects is how many redirects are followed, as in Go and so in kubelet.
const maxRedirects = 10

// fetch makes one request.
func (s *Source) fetch(ctx context.Context) (*answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.Timeout,
		fmt.Errorf("no complete answer within %s", s.opts.Timeout))
	defer cancel()
	transport, err := s.client.transport(ctx)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = s.opts.Header.Clone()
	s.state.last.condition(req)
	resp, err := (&http.Client{Transport: transport, CheckRedirect: s.redirect}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a, err := s.state.last.read(resp)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", resp.Request.URL.Redacted(), err)
	}
	return a, nil
}

// read returns the answer in a response to a request that has the conditions of a, the
// last answer, which may be nil.
func (a *answer) read(resp *http.Response) (*answer, error) {
	switch {
	case resp.StatusCode == http.StatusNotModified && a.describes(resp.Request):
		return &answer{unchanged: true}, nil
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the server answered %s", resp.Status)
	}
	if resp.ContentLength > manifest.MaxSize {
		return nil, manifest.ErrTooLarge
	}
	// One byte above the limit shows that the body is too large.
	body, err := io.ReadAll(io.LimitReader(resp.Body, manifest.MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(body) > manifest.MaxSize {
		return nil, manifest.ErrTooLarge
	}
	next := &answer{body: body, url: resp.Request.URL.String()}
	next.changed, _ = http.ParseTime(resp.Header.Get("Last-Modified"))
	if !fresh(resp.Header) {
		next.etag, next.modified = resp.Header.Get("Etag"), resp.Header.Get("Last-Modified")
	}
	return next, nil
}

// describes reports whether the answer is from the URL of the request, so that its
// validators are valid there. The answer may be nil.
func (a *answer) describes(req *http.Request) bool {
	return a != nil && a.url == req.URL.String() && (a.etag != "" || a.modified != "")
}

// condition makes the request conditional: the server sends no body if it is still that
// of the answer.
func (a *answer) condition(req *http.Request) {
	req.Header.Del("If-None-Match")
	req.Header.Del("If-Modified-Since")
	if !a.describes(req) {
		return
	}
	if a.etag != "" {
		req.Header.Set("If-None-Match", a.etag)
	}
	if a.modified != "" {
		req.Header.Set("If-Modified-Since", a.modified)
	}
}

// fresh reports whether the content was modified so recently that its next change may
// have the same validators: Last-Modified has whole seconds (RFC 9110, 8.8.2.2), and
// servers derive ETags from it.
func fresh(h http.Header) bool {
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return false // so no ETag is derived from it
	}
	date, err := http.ParseTime(h.Get("Date"))
	return err != nil || date.Sub(modified) < 2*time.Second
}

// redirect decides whether a redirect is followed, and with which headers.
func (s *Source) redirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	from := via[len(via)-1].URL
	if from.Scheme == "https" && req.URL.Scheme != "https" {
		return errors.New("the server redirects from https to " + req.URL.Scheme + ", which is not safe")
	}
	for _, r := range append(via[1:len(via):len(via)], req) {
		if sameOrigin(r.URL, s.url) {
			continue
		}
		// After the first redirect to another origin, that origin controls the target. So
		// the headers stay off, also if it redirects back.
		for name := range s.opts.Header {
			req.Header.Del(name)
		}
		req.Header.Del("Referer") // the query of a URL may be secret
		break
	}
	s.state.last.condition(req)
	return nil
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }
