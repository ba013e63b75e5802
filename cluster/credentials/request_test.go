package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/certificate"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
)

// certificateOf returns a certificate for the addresses, for an hour from now.
func certificateOf(addresses ...string) *tls.Certificate {
	leaf := &x509.Certificate{Subject: subject("n"), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	for _, a := range addresses {
		leaf.IPAddresses = append(leaf.IPAddresses, net.ParseIP(a))
	}
	return &tls.Certificate{Leaf: leaf}
}

func templateOf(addresses ...string) *x509.CertificateRequest {
	t := &x509.CertificateRequest{Subject: subject("n")}
	for _, a := range addresses {
		t.IPAddresses = append(t.IPAddresses, net.ParseIP(a))
	}
	return t
}

func TestUntilDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current, template := (*tls.Certificate)(nil), (*x509.CertificateRequest)(nil)
		r := &requester{current: func() *tls.Certificate { return current },
			template: func() *x509.CertificateRequest { return template }}
		assert.Equal(t, lookPeriod, r.untilDue(time.Now()), "nothing to request yet")
		template = templateOf("192.0.2.1")
		assert.Zero(t, r.untilDue(time.Now()), "there is none")
		current = certificateOf("192.0.2.1", "192.0.2.2")
		wait := r.untilDue(time.Now())
		assert.GreaterOrEqual(t, wait, 42*time.Minute)
		assert.LessOrEqual(t, wait, 54*time.Minute)
		assert.Equal(t, wait, r.untilDue(time.Now()), "it is drawn once")
		assert.Zero(t, r.untilDue(time.Now().Add(wait)))
		assert.Zero(t, r.untilDue(time.Now().Add(2*time.Hour)), "it has expired")
		template = templateOf("192.0.2.3")
		assert.Zero(t, r.untilDue(time.Now()), "the address of the node has changed")
		r.asked = templateOf("192.0.2.3")
		assert.Positive(t, r.untilDue(time.Now()), "the signer has left the address out")
		current.Leaf.Subject = pkix.Name{CommonName: "admin"}
		r.asked = nil
		template = templateOf()
		assert.Zero(t, r.untilDue(time.Now()), "the certificate of somebody else")
	})
}

// kept keeps what is measured.
type kept struct {
	expires []time.Time
	ages    []time.Duration
	failed  int
}

func (k *kept) CertificateExpires(at time.Time)      { k.expires = append(k.expires, at) }
func (k *kept) CertificateRotated(age time.Duration) { k.ages = append(k.ages, age) }
func (k *kept) RenewalFailed()                       { k.failed++ }

// A request that fails is repeated with back-off, and ends with the context.
func TestRequestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		start := time.Now()
		m := &kept{}
		r := &requester{metrics: m,
			current:  func() *tls.Certificate { return nil },
			template: func() *x509.CertificateRequest { return templateOf() },
			client: func(context.Context) (kubernetes.Interface, error) {
				at = append(at, time.Since(start))
				return nil, errors.New("no")
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		r.run(ctx)
		assert.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second}, at[:5])
		assert.Len(t, at, 15, "then once a minute")
		assert.Equal(t, 15, m.failed)
	})
}

// signedBy returns a requester whose requests are signed at once, and their number.
func signedBy(t *testing.T, signer *apiServer, dir string, requested func(n int)) (r *requester, m *kept) {
	requests := 0
	var latest certificatesv1.CertificateSigningRequest
	api := apitest.NewClientset()
	api.PrependReactor("create", "certificatesigningrequests", func(a clienttesting.Action) (bool, kruntime.Object,
		error) {
		csr := a.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
		requests++
		requested(requests)
		csr.Name, csr.UID = fmt.Sprintf("csr-%d", requests), types.UID(fmt.Sprintf("csr-%d", requests))
		signer.sign(csr)
		latest = *csr
		return true, csr, nil
	})
	api.PrependReactor("list", "certificatesigningrequests", func(clienttesting.Action) (bool, kruntime.Object, error) {
		return true, &certificatesv1.CertificateSigningRequestList{
			Items: []certificatesv1.CertificateSigningRequest{latest}}, nil
	})
	files, err := certificate.NewFileStoreWithLogger(logr.Discard(), "n", dir, dir, "", "")
	require.NoError(t, err)
	var current *tls.Certificate
	m = &kept{}
	return &requester{metrics: m,
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usage: certificatesv1.UsageClientAuth,
		store: files, current: func() *tls.Certificate { return current },
		template: func() *x509.CertificateRequest { return templateOf() },
		client:   func(context.Context) (kubernetes.Interface, error) { return api, nil },
		use:      func(c *tls.Certificate) { current = c },
	}, m
}

// A certificate that is to be replaced when it arrives, because the clock of the node is ahead
// of that of the signer, is replaced with back-off.
func TestRequestOfWhatIsDueAtOnce(t *testing.T) {
	for name, life := range map[string]time.Duration{"expired": -time.Minute, "due": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				requests := 0
				r, m := signedBy(t, &apiServer{ca: newAuthority(t), life: life}, dir, func(n int) {
					if requests = n; n == 100 {
						cancel()
					}
				})
				r.run(ctx)
				assert.Positive(t, requests)
				assert.LessOrEqual(t, requests, 6)
				assert.Zero(t, m.failed, "it is signed")
			})
		})
	}
}

// What is not a certificate for the key is requested again, and leaves no file.
func TestWrongCertificates(t *testing.T) {
	ca := newAuthority(t)
	other := ca.issue(subject("n"), time.Now(), time.Hour)
	for name, wrong := range map[string][]byte{
		"no certificate": []byte("garbage"), "no DER": []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "of another key": other.cert,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				r, m := signedBy(t, &apiServer{ca: ca, wrong: wrong}, dir, func(int) {})
				r.run(ctx)
				assert.Greater(t, m.failed, 5)
				assert.LessOrEqual(t, m.failed, 16)
			})
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Empty(t, files)
		})
	}
}

// Certificates whose lifetime is short, or that are for addresses that change all the time, do not follow
// each other without a pause: each has a file, and closes all connections.
func TestCertificatesHaveAPause(t *testing.T) {
	for name, test := range map[string]struct {
		life      time.Duration
		addresses int64
	}{"a short life": {5 * time.Second, 1}, "addresses that change": {time.Hour, 200}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				requests := 0
				r, _ := signedBy(t, &apiServer{ca: newAuthority(t), life: test.life, fresh: true}, dir, func(n int) {
					if requests = n; n == 1000 {
						cancel()
					}
				})
				r.template = func() *x509.CertificateRequest {
					return templateOf(fmt.Sprintf("192.0.2.%d", time.Now().Unix()%test.addresses))
				}
				r.run(ctx)
				assert.Greater(t, requests, 5)
				assert.LessOrEqual(t, requests, 21, "one in 30 s")
			})
		})
	}
}
