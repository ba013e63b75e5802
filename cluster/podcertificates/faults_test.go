package podcertificates_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage/outagetest"
	"github.com/kubeletkit/kubeletkit/cluster/podcertificates"
)

func TestErrors(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.fail = apierrors.NewForbidden(certificatesv1.Resource("podcertificaterequests"), "", errors.New("no"))
		_, _, err := w.get()
		require.ErrorIs(t, err, podcertificates.ErrNotIssued)
		require.ErrorContains(t, err, "while creating on API: podcertificaterequests.certificates.k8s.io is "+
			"forbidden: no")
		time.Sleep(time.Hour)
		synctest.Wait()
		w.set(nil)
		time.Sleep(2 * time.Minute)
		w.answer(issued, certificate("1"))
		_, _, err = w.get()
		require.NoError(t, err)
		assert.Equal(t, 1, strings.Count(w.log.String(), "cannot be requested"), "%s", w.log.String())
	})
}

// The end of an outage ends the back-off.
func TestOutageEnds(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.set(errors.New("connection refused"))
		_, _, err := w.get()
		require.ErrorContains(t, err, "connection refused")
		time.Sleep(time.Hour)
		w.set(nil)
		outagetest.End(t.Context(), &w.signal)
		w.answer(issued, certificate("1"))
		_, _, err = w.get()
		require.NoError(t, err)
	})
}

// A request whose answer was lost is repeated as it was.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.lost = true
		_, _, err := w.get()
		require.Error(t, err)
		time.Sleep(time.Minute)
		_, _ = w.latest()
		list, err := w.client.CertificatesV1().PodCertificateRequests("").List(w.t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		assert.Len(t, list.Items, 1)
		w.answer(issued, certificate("1"))
		key, _, err := w.get()
		require.NoError(t, err)
		csr, err := x509.ParseCertificateRequest(list.Items[0].Spec.StubPKCS10Request)
		require.NoError(t, err)
		assert.Equal(t, parseKey(t, key).(ed25519.PrivateKey).Public(), csr.PublicKey)
	})
}

// A request that may have arrived is repeated as it was, also if the API server cannot answer then.
func TestLostAnswerOfABusyServer(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.lost, w.late = true, 10*time.Second
		go func() {
			time.Sleep(50 * time.Millisecond)
			w.set(apierrors.NewTooManyRequests("busy", 1))
		}()
		_, _, err := w.get()
		require.ErrorContains(t, err, "busy")
		w.set(nil)
		time.Sleep(time.Minute)
		_, n := w.latest()
		assert.Equal(t, 2, n, "the one that was lost, and the one that was not")
		list, err := w.client.CertificatesV1().PodCertificateRequests("").List(w.t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		assert.Len(t, list.Items, 1)
	})
}
