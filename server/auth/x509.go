package auth

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// filePeriod is the time between two looks at a file (kubelet: a minute, and inotify).
const filePeriod = 10 * time.Second

// credentialID is the key of the extra value that names the certificate of a user.
const credentialID = "authentication.kubernetes.io/credential-id"

// ClientCA is an [Authenticator] of clients with certificates. The user is the common name of the
// certificate, the groups are its organizations.
type ClientCA struct {
	file string
	log  logr.Logger

	mu      sync.Mutex
	checked time.Time // when the file was last read
	content []byte
	roots   *x509.CertPool
}

// NewClientCA returns an authenticator of clients whose certificates are signed by an authority
// in the file, which has certificates in PEM. The file is read again when it changes, within 10
// seconds; while it cannot be read or has no certificate, the authorities are those of before.
func NewClientCA(file string, log logr.Logger) (*ClientCA, error) {
	c := &ClientCA{file: file, log: log}
	if err := c.read(); err != nil {
		return nil, err
	}
	c.checked = time.Now()
	return c, nil
}

// read reads the file.
func (c *ClientCA) read() error {
	content, err := os.ReadFile(c.file)
	if err != nil {
		return fmt.Errorf("certificate authorities of clients: %w", err)
	}
	if bytes.Equal(content, c.content) {
		return nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		return fmt.Errorf("certificate authorities of clients: %s has no certificate in PEM", c.file)
	}
	c.content, c.roots = content, roots
	return nil
}

// pool returns the current authorities.
func (c *ClientCA) pool() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= filePeriod {
		c.checked = now
		if err := c.read(); err != nil {
			c.log.Error(err, "The certificate authorities of clients are those of before")
		}
	}
	return c.roots
}

// Authenticate implements [Authenticator].
func (c *ClientCA) Authenticate(req *http.Request) (*authenticationv1.UserInfo, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	leaf := req.TLS.PeerCertificates[0]
	opts := x509.VerifyOptions{Roots: c.pool(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, cert := range req.TLS.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	if _, err := leaf.Verify(opts); err != nil {
		return nil, fmt.Errorf("client certificate of %q: %w", leaf.Subject.CommonName, err)
	}
	if leaf.Subject.CommonName == "" {
		return nil, errors.New("client certificate: it has no common name, which is the user")
	}
	sum := sha256.Sum256(leaf.Raw)
	return &authenticationv1.UserInfo{
		Username: leaf.Subject.CommonName, Groups: leaf.Subject.Organization,
		Extra: map[string]authenticationv1.ExtraValue{credentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}, nil
}
