// Package outagetest ends outages in tests.
package outagetest

import (
	"context"
	"net/http"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
)

// End has the signal sent as at the end of an outage: a request fails, and then succeeds.
func End(ctx context.Context, signal *outage.Signal) {
	for _, code := range []status{http.StatusInternalServerError, http.StatusOK} {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://api/lease", http.NoBody)
		if err != nil {
			panic(err)
		}
		resp, err := signal.Transport(code).RoundTrip(r)
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
	}
}

// status is a transport whose responses have the status.
type status int

// RoundTrip implements [http.RoundTripper].
func (s status) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(s), Body: http.NoBody}, nil
}
