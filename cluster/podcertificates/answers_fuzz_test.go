package podcertificates

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Whatever is in the status of a request, the pod gets certificates without anything else, or an error,
// and the next request is a minute later at the earliest.
func FuzzRequestStatus(f *testing.F) {
	f.Add(
		[]byte(
			`{"conditions":[{"type":"Issued","status":"True"}],"certificateChain":"# a\n-----BEGIN CERTIFICATE-----\nof: a\n\nAAAA\n-----END CERTIFICATE-----\n","beginRefreshAt":"2026-01-01T00:00:00Z","notAfter":"2126-01-01T00:00:00Z"}`))
	f.Add(
		[]byte(
			`{"conditions":[{"type":"Issued","status":"True"}],"beginRefreshAt":"9999-01-01T00:00:00Z","notAfter":"0000-01-01T00:00:00Z"}`))
	f.Add(
		[]byte(
			`{"conditions":[{"type":"Issued","status":"True"},{"type":"Denied","status":"True","reason":"x","message":"y"}]}`))
	f.Add([]byte(`{"conditions":[{"type":"Failed","status":"True"},{"type":"Denied","status":"False"}]}`))
	web := testpod.New("web", testpod.UID("u1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var status certificatesv1.PodCertificateRequestStatus
		if json.Unmarshal(data, &status) != nil {
			return
		}
		events := 0
		c, err := New(kubernetes.New(nil), "node-1", Options{NodeUID: func() types.UID { return "node-uid" },
			Observer: runtime.Observer{NonBlocking: true, Event: func(runtime.Event) { events++ }}})
		require.NoError(t, err)
		p, err := c.projection(key{web.UID, "v", 0}, web, &v1.PodCertificateProjection{})
		require.NoError(t, err)
		request := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace,
			Name: "req"}, Status: status}
		p.pending, p.required = &pending{object: request, key: []byte("key")}, time.Now().Add(-patience)
		c.requests[p.pending.name()] = p
		now := time.Now()
		require.NoError(t, (*store)(c).Update(request))
		keyPEM, chain, err := c.PodCertificate(t.Context(), web, "v", 0, p.spec)
		switch {
		case err != nil && p.refused != nil:
			require.ErrorIs(t, err, ErrRefused)
			require.Equal(t, 1, events)
		case err != nil:
			require.ErrorIs(t, err, ErrNotIssued)
			require.NotNil(t, p.pending, "the answer is still to come")
		default:
			require.Equal(t, "key", string(keyPEM))
			require.Equal(t, string(chain), string(cleanChain(string(chain))))
			require.Equal(t, strings.Count(string(chain), "-----BEGIN CERTIFICATE-----\n"),
				strings.Count(string(chain), "-----BEGIN"))
			require.False(t, p.issued.refreshAt.Before(now.Add(minUse)))
		}
		for _, at := range []time.Time{now, now.Add(minUse / 2)} {
			due, _, _ := c.due(at)
			require.Empty(t, due)
		}
	})
}
