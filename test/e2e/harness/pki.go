package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority is a certificate authority. Its files are ca.crt and ca.key in dir.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes an authority whose files are in dir.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return a, writePair(filepath.Join(dir, "ca"), der, key)
}

// issue writes a certificate and its key to <name>.crt and <name>.key. It is for a server
// and a client, of the user and the groups.
func (a *authority) issue(name, user string, life time.Duration, groups ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 62))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: user, Organization: groups},
		NotBefore: time.Now().Add(-min(time.Hour, life/8)), NotAfter: time.Now().Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost", "kubernetes.default.svc"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	return writePair(filepath.Join(a.dir, name), der, key)
}

func writePair(path string, der []byte, key *ecdsa.PrivateKey) error {
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(path+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600))
}

// kubeconfig writes <name>.kubeconfig for the certificate <name>, or for the token if there
// is one, and returns its path.
func (a *authority) kubeconfig(name, server, token string) (string, error) {
	user := &clientcmdapi.AuthInfo{Token: token}
	if token == "" {
		user.ClientCertificate, user.ClientKey = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	}
	path := filepath.Join(a.dir, name+".kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"e2e": {Server: server,
			CertificateAuthority: filepath.Join(a.dir, "ca.crt")}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Contexts:       map[string]*clientcmdapi.Context{"e2e": {Cluster: "e2e", AuthInfo: name}},
		CurrentContext: "e2e",
	}, path)
	if err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", name, err)
	}
	return path, nil
}

// ClientFiles returns the files of an authority for clients of a node without an API server, and of
// a certificate that it has signed, for a user in the groups, with its key.
func ClientFiles(t testing.TB, user string, groups ...string) (ca, cert, key string) {
	t.Helper()
	a, err := newAuthority(t.TempDir())
	if err == nil {
		err = a.issue("client", user, 24*time.Hour, groups...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(a.dir, "ca.crt"), filepath.Join(a.dir, "client.crt"), filepath.Join(a.dir, "client.key")
}
