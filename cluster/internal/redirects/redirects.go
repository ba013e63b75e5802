// Package redirects refuses the redirects of an API server. The client would follow them, and send
// the credentials of the node to another host.
package redirects

import "net/http"

// Refuse returns a transport whose responses lead nowhere: a redirect is an error of the request.
func Refuse(rt http.RoundTripper) http.RoundTripper { return &transport{rt} }

type transport struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest {
		resp.Header.Del("Location") // without it, the client does not follow
	}
	return resp, err
}

// WrappedRoundTripper returns the transport that is wrapped, for client-go.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
