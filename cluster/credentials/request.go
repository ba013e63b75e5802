package credentials

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

const (
	callTimeout = 30 * time.Second
	signTimeout = 15 * time.Minute // client-go: certificateWaitTimeout
	lookPeriod  = 10 * time.Second // between two looks at the template
	// minPause is the least time between a certificate and the request for the next one, whatever its
	// lifetime is: each has a file of its own, and closes all connections.
	minPause = 30 * time.Second
)

// errDue means that another certificate is due at once.
var errDue = errors.New("the new certificate is to be replaced already, or was not signed for what was requested: " +
	"check the clocks of this node and of the signer, and the duration of certificates")

// subject is the subject of a node's certificates, which the authorizer of nodes requires.
func subject(nodeName string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}}
}

// requester keeps a certificate valid. It requests a new one when 70 to 90 % of the life of
// the current one are over, or when the current one does not have all that the template has.
//
// client-go has a manager that does the same. A goroutine of it outlives its Stop until the
// next rotation is due, so this package uses the functions that the manager is made of.
type requester struct {
	store   certificate.FileStore
	signer  string
	usage   certificatesv1.KeyUsage
	current func() *tls.Certificate // nil: there is none
	// template returns the content of the next request, nil if there is none yet.
	template func() *x509.CertificateRequest
	// client returns the client for the request. It may wait for the API server.
	client func(ctx context.Context) (kubernetes.Interface, error)
	// expires returns when the certificate of that client expires: it cannot read after that
	// whether its request was signed. The zero time, and a nil function, mean never.
	expires func() time.Time
	// use is called with each new certificate.
	use func(*tls.Certificate)
	// once ends run when there is a valid certificate.
	once    bool
	metrics Metrics
	log     logr.Logger

	// asked is the template of the last certificate that was signed. If the signer has left something
	// out, it is not requested again and again.
	asked *x509.CertificateRequest
	// due is the time at which the certificate dueFor is replaced.
	due    time.Time
	dueFor *tls.Certificate
	// issued is the time of the last certificate that was signed.
	issued time.Time
}

// run requests certificates until ctx ends.
func (r *requester) run(ctx context.Context) {
	failures, retries := 0, flow.Backoff{Min: time.Second, Max: time.Minute}
	for {
		wait := retries.After(failures)
		if failures == 0 {
			if wait = r.untilDue(time.Now()); wait > 0 && r.once {
				return
			}
			wait = max(min(wait, lookPeriod), minPause-time.Since(r.issued))
		}
		if !flow.Sleep(ctx, wait) {
			return
		}
		if failures == 0 && r.untilDue(time.Now()) > 0 {
			continue
		}
		err := r.request(ctx)
		if err == nil && r.untilDue(time.Now()) == 0 {
			err = errDue
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !errors.Is(err, errDue) {
				r.metrics.RenewalFailed()
			}
			failures++
			r.log.Error(err, "Requesting a certificate failed", "signer", r.signer,
				"retryAfter", retries.After(failures))
		default:
			failures = 0
		}
	}
}

// untilDue returns the time until a certificate is to be requested, 0 for now.
func (r *requester) untilDue(now time.Time) time.Duration {
	template := r.template()
	if template == nil {
		return lookPeriod
	}
	cert := r.current()
	if cert == nil || cert.Leaf == nil || !now.Before(cert.Leaf.NotAfter) || !r.satisfied(cert.Leaf, template) {
		return 0
	}
	if cert != r.dueFor {
		life := cert.Leaf.NotAfter.Sub(cert.Leaf.NotBefore)
		r.dueFor, r.due = cert, cert.Leaf.NotBefore.Add(time.Duration((0.7+0.2*mathrand.Float64())*float64(life)))
	}
	return max(0, r.due.Sub(now))
}

// satisfied reports whether the certificate has all that the template has, or was signed for
// this very template.
func (r *requester) satisfied(cert *x509.Certificate, template *x509.CertificateRequest) bool {
	return r.asked != nil && sameRequest(r.asked, template) || covers(cert, template)
}

// covers reports whether the certificate has the name, groups and addresses of the template.
func covers(cert *x509.Certificate, template *x509.CertificateRequest) bool {
	if cert.Subject.CommonName != template.Subject.CommonName {
		return false
	}
	for _, group := range template.Subject.Organization {
		if !slices.Contains(cert.Subject.Organization, group) {
			return false
		}
	}
	for _, name := range template.DNSNames {
		if !slices.Contains(cert.DNSNames, name) {
			return false
		}
	}
	for _, ip := range template.IPAddresses {
		if !slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

// sameRequest compares templates of one node.
func sameRequest(a, b *x509.CertificateRequest) bool {
	return slices.Equal(a.DNSNames, b.DNSNames) && slices.EqualFunc(a.IPAddresses, b.IPAddresses, net.IP.Equal)
}

// request requests a certificate, waits until it is signed, and stores it.
func (r *requester) request(ctx context.Context) error {
	client, err := r.client(ctx)
	if err != nil {
		return err
	}
	template := r.template()
	if template == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generating a key: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encoding the key: %w", err)
	}
	csrPEM, err := certutil.MakeCSRFromTemplate(key, template)
	if err != nil {
		return fmt.Errorf("encoding the signing request: %w", err)
	}
	ctx = klog.NewContext(ctx, r.log.V(2))
	name, uid, err := func() (string, types.UID, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, r.usage}
		return csr.RequestCertificateWithContext(ctx, client, csrPEM, "", r.signer, nil, usages, key)
	}()
	if err != nil {
		return err
	}
	r.log.Info("Requested a certificate; waiting until it is signed", "signer", r.signer, "request", name)
	deadline := time.Now().Add(signTimeout)
	if r.expires != nil {
		if at := r.expires(); !at.IsZero() && at.Before(deadline) {
			deadline = at
		}
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	certPEM, err := csr.WaitForCertificate(ctx, client, name, uid)
	if err != nil {
		return fmt.Errorf("certificate signing request %s: %w", name, err)
	}
	chain, err := signedChain(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("certificate signing request %s: the signed certificate: %w", name, err)
	}
	cert, err := r.store.Update(chain, keyPEM)
	if err != nil {
		return fmt.Errorf("storing the certificate: %w", err)
	}
	r.asked, r.issued = template, time.Now()
	r.use(cert)
	return nil
}

// signedChain returns the certificates in PEM without anything else. It returns an error if the first
// one is not for the key. The store would make a file before it returns that error.
func signedChain(data, keyPEM []byte) ([]byte, error) {
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil, err
	}
	chain, err := certutil.EncodeCertificates(certs...)
	if err != nil {
		return nil, err
	}
	if _, err := tls.X509KeyPair(chain, keyPEM); err != nil {
		return nil, err
	}
	return chain, nil
}
