package http_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	podhttp "github.com/kubeletkit/kubeletkit/podconfig/http"
)

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	cert, key, err := a.sign(&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		IsCA: true, BasicConstraintsValid: true})
	require.NoError(t, err)
	a.pem = cert
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// sign returns a certificate and its key in PEM.
func (a *authority) sign(template *x509.Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, signer)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), err
}

// leaf signs a certificate for a name.
func (a *authority) leaf(name string) (cert, key []byte) {
	cert, key, err := a.sign(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(a.t, err)
	return cert, key
}

func write(t *testing.T, path string, content []byte) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// TestClientCertificates reads from a server that requires a client certificate, and
// replaces the files while the source runs.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	serverCert, serverKey := ca.leaf("server")
	pair, err := tls.X509KeyPair(serverCert, serverKey)
	require.NoError(t, err)
	clients := x509.NewCertPool()
	clients.AddCert(ca.cert)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, manifestOf(r.TLS.PeerCertificates[0].Subject.CommonName, "1"))
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: clients,
		ClientAuth: tls.RequireAndVerifyClientCert}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()

	dir := t.TempDir()
	opts := podhttp.Options{CheckFrequency: time.Millisecond, CAFile: filepath.Join(dir, "ca"),
		CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	use := func(a *authority, name string) {
		cert, key := a.leaf(name)
		write(t, opts.KeyFile, key)
		write(t, opts.CertFile, cert)
	}
	problems, sets := make(chan string, 1000), make(chan string, 1000)
	opts.Problem = func(_ string, err error) { problems <- fmt.Sprint(err) }
	s, err := podhttp.New(srv.URL, opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx, sink(func(pods []*v1.Pod) { sets <- pods[0].Name })) }()
	await := func(c chan string, want string) {
		t.Helper()
		for deadline := time.After(30 * time.Second); ; {
			select {
			case got := <-c:
				if strings.Contains(got, want) {
					return
				}
			case <-deadline:
				require.Fail(t, "never came", want)
			}
		}
	}

	await(problems, "reading the CA file: open "+opts.CAFile)
	write(t, opts.CAFile, []byte("x"))
	await(problems, "reading the certificate file")
	use(ca, "first")
	await(problems, "CA file "+opts.CAFile+": it holds no certificate in PEM")
	write(t, opts.CAFile, other.pem)
	await(problems, "certificate signed by unknown authority")
	write(t, opts.CAFile, ca.pem)
	await(sets, "first-node")
	await(problems, "<nil>")
	use(other, "foreign")
	await(problems, "remote error: tls:")
	write(t, opts.KeyFile, serverKey)
	await(problems, "private key does not match public key")
	use(ca, "second")
	await(sets, "second-node")
	cancel()
	require.NoError(t, <-done)
}

// TestOneConnection: periodic requests use one connection.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	var conns, requests atomic.Int32
	enough := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, manifestOf("a", "1"))
		if requests.Add(1) == 20 {
			close(enough)
		}
	}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	s, err := podhttp.New(srv.URL, podhttp.Options{CheckFrequency: time.Millisecond})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx, sink(func([]*v1.Pod) {})) }()
	<-enough
	cancel()
	require.NoError(t, <-done)
	assert.EqualValues(t, 1, conns.Load())
}

// TestTimeout has servers that hang before and within their answer.
func TestTimeout(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{false, true} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if begun {
				_, _ = io.WriteString(w, manifestOf("a", "1"))
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		}))
		problems := make(chan string, 1000)
		s, err := podhttp.New(srv.URL, podhttp.Options{Timeout: 20 * time.Millisecond,
			Problem: func(_ string, err error) { problems <- err.Error() }})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx, sink(func([]*v1.Pod) {})) }()
		assert.Contains(t, <-problems, "no complete answer within 20ms")
		cancel()
		require.NoError(t, <-done)
		srv.Close()
	}
}
