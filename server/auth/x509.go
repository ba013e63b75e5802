package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/asn1"

	"github.com/kubeletkit/kubeletkit/internal/logging"
)

// credentialID is the key of the extra value that names the certificate of a user, as in kubelet.
const credentialID = "authentication.kubernetes.io/credential-id"

// ClientCA is an [Authenticator] of clients with certificates. The user is the common name of the
// certificate, the groups are its organizations, and its UID, if there is one, is the attribute
// 1.3.6.1.4.1.57683.2 of the subject.
type ClientCA struct{ roots *file[*x509.CertPool] }

// NewClientCA returns an authenticator of clients whose certificates are signed by an authority
// in the file, which has certificates in PEM. The file is read again when it changes, within 10
// seconds; while it cannot be used, the authorities are those of before.
// A zero log is that of package slog.
func NewClientCA(path string, log logr.Logger) (*ClientCA, error) {
	log = logging.OrDefault(log)
	roots, err := newFile(path, "certificate authorities of clients", log,
		func(content []byte) (*x509.CertPool, error) {
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(content) {
				return nil, errors.New("no certificate in PEM")
			}
			return pool, nil
		})
	if err != nil {
		return nil, err
	}
	return &ClientCA{roots}, nil
}

// Authenticate implements [Authenticator]. The certificate is verified with each request, so that
// one that has expired, or whose authority is gone, ends with the next request of a connection.
func (c *ClientCA) Authenticate(req *http.Request) (*authenticationv1.UserInfo, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	leaf := req.TLS.PeerCertificates[0]
	opts := x509.VerifyOptions{Roots: c.roots.get(), Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, cert := range req.TLS.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	if _, err := leaf.Verify(opts); err != nil {
		return nil, fmt.Errorf("client certificate of %q: %w", leaf.Subject.CommonName, err)
	}
	if leaf.Subject.CommonName == "" {
		return nil, errors.New("client certificate: it has no common name, which is the user")
	}
	uid, err := uidOf(leaf)
	if err != nil {
		return nil, fmt.Errorf("client certificate of %q: %w", leaf.Subject.CommonName, err)
	}
	sum := sha256.Sum256(leaf.Raw)
	return &authenticationv1.UserInfo{
		Username: leaf.Subject.CommonName, UID: uid, Groups: leaf.Subject.Organization,
		Extra: map[string]authenticationv1.ExtraValue{credentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}, nil
}

// uidOf returns the UID in the subject of a certificate, "" if there is none, as kubelet
// (AllowParsingUserUIDFromCertAuth).
func uidOf(cert *x509.Certificate) (string, error) {
	uid := ""
	for _, name := range cert.Subject.Names {
		if !name.Type.Equal(asn1.X509UID()) {
			continue
		}
		value, ok := name.Value.(string)
		if !ok || value == "" || uid != "" {
			return "", errors.New("its subject must have at most one UID, a string that is not empty")
		}
		uid = value
	}
	return uid, nil
}
