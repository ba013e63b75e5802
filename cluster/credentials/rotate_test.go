package credentials

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// logger collects what is logged.
func logger(lines chan<- string) logr.Logger {
	return funcr.New(func(_, args string) {
		select {
		case lines <- args:
		default:
		}
	}, funcr.Options{Verbosity: 5})
}

// running is a client that runs.
type running struct {
	t    *testing.T
	c    *Client
	stop func()
}

func run(t *testing.T, opts Options) *running {
	c, err := Load("n", opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	r := &running{t: t, c: c, stop: func() { cancel(); require.NoError(t, <-done) }}
	t.Cleanup(func() { r.stop = nil; cancel(); <-ctx.Done() })
	return r
}

// whoami returns who the server takes the client for. A call that is under way when the client
// closes its connections fails; it is repeated.
func whoami(t *testing.T, c *Client) string {
	client, err := rest.HTTPClientFor(c.Config())
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Config().Host+"/whoami", nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	if errors.Is(err, net.ErrClosed) {
		resp, err = client.Do(req)
	}
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

func mode(t *testing.T, path string) os.FileMode {
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Mode().Perm()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, 10*time.Millisecond, what)
}

func (s *apiServer) options(rotate bool) Options {
	return Options{
		Kubeconfig: s.path("kubelet.conf"), BootstrapKubeconfig: s.kubeconfig("bootstrap.conf", "token: bootstrapper"),
		CertDir: s.path("pki"), Rotate: rotate,
	}
}

func TestBootstrap(t *testing.T) {
	s := newServer(t)
	lines := make(chan string, 1000)
	opts := s.options(false)
	opts.Logger = logger(lines)
	r := run(t, opts)
	require.NoError(t, r.c.Available(t.Context()))
	assert.Equal(t, "system:node:n", whoami(t, r.c))
	assert.Equal(t, []string{"bootstrapper"}, s.signed())
	for _, csr := range s.requests {
		assert.Equal(t, certificatesv1.KubeAPIServerClientKubeletSignerName, csr.Spec.SignerName)
		assert.Equal(t, []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			csr.Spec.Usages)
	}
	current := filepath.Join(opts.CertDir, "kubelet-client-current.pem")
	assert.Equal(t, os.FileMode(0o600), mode(t, current))
	eventually(t, "the kubeconfig", func() bool { _, err := os.Stat(opts.Kubeconfig); return err == nil })
	assert.Equal(t, os.FileMode(0o600), mode(t, opts.Kubeconfig))
	r.stop()

	// The next start has a kubeconfig with a valid certificate, and needs neither a request nor
	// the bootstrap kubeconfig.
	require.NoError(t, os.Remove(opts.BootstrapKubeconfig))
	for _, rotate := range []bool{false, true} {
		opts.Rotate = rotate
		next := run(t, opts)
		assert.Equal(t, "system:node:n", whoami(t, next.c))
		assert.Len(t, s.signed(), 1)
		next.stop()
	}

	key, err := os.ReadFile(current)
	require.NoError(t, err)
	for len(lines) > 0 {
		line := <-lines
		assert.NotContains(t, line, "bootstrapper")
		assert.NotContains(t, line, string(key[len(key)-60:]))
	}
}

// The API server comes up after the agent: it may be a pod of the agent.
func TestBootstrapBeforeTheServer(t *testing.T) {
	s := newServer(t)
	s.set(func() { s.away = true })
	lines := make(chan string, 100)
	opts := s.options(true)
	opts.Logger = logger(lines)
	r := run(t, opts)
	for line := range lines {
		if strings.Contains(line, "Waiting for the API server") {
			break
		}
	}
	s.set(func() { s.away, s.hold = false, true }) // it answers, and does not sign yet
	eventually(t, "a request", func() bool { return len(s.signed()) == 1 })
	assert.Empty(t, whoami(t, r.c), "without credentials meanwhile")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.c.Available(ended), context.Canceled)
	r.stop()
}

func TestRotation(t *testing.T) {
	s := newServer(t)
	opts := s.options(true)
	// A certificate that has lived for nine tenths of its life.
	old := s.ca.issue(subject("n"), time.Now().Add(-54*time.Minute), time.Hour)
	require.NoError(t, os.MkdirAll(opts.CertDir, 0o700))
	file := write(t, filepath.Join(opts.CertDir, "old.pem"), string(old.cert)+string(old.key))
	require.NoError(t, os.Symlink(file, filepath.Join(opts.CertDir, "kubelet-client-current.pem")))
	s.kubeconfig("kubelet.conf", "client-certificate: "+opts.CertDir+"/kubelet-client-current.pem, client-key: "+
		opts.CertDir+"/kubelet-client-current.pem")

	c, err := Load("n", opts)
	require.NoError(t, err)
	before := c.valid()
	assert.Equal(t, "system:node:n", whoami(t, c))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	eventually(t, "another certificate", func() bool { return c.valid() != before })
	assert.Equal(t, []string{"system:node:n"}, s.signed(), "requested as the node itself")
	eventually(t, "the old connection is closed", func() bool {
		assert.Equal(t, "system:node:n", whoami(t, c))
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) > 1
	})
	require.ErrorIs(t, c.Run(ctx), runtime.ErrAlreadyRunning)
	cancel()
	require.NoError(t, <-done)
}

// A certificate that expires before another one is signed cannot be used to read whether it was
// signed: there is another request, with the bootstrap kubeconfig.
func TestExpiresWhileNobodySigns(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.set(func() { s.hold = true })
	opts := s.options(true)
	// Its life is over soon, but not before the node has sent a request.
	const left = 5 * time.Second
	old := s.ca.issue(subject("n"), time.Now().Add(-10*left), 11*left)
	cert, key := write(t, s.path("c.pem"), string(old.cert)), write(t, s.path("k.pem"), string(old.key))
	s.kubeconfig("kubelet.conf", "client-certificate: "+cert+", client-key: "+key)
	r := run(t, opts)
	eventually(t, "a request of the node", func() bool { return len(s.signed()) == 1 })
	s.set(func() { s.hold = false })
	eventually(t, "a certificate that is valid", func() bool {
		cert := r.c.valid()
		return cert.Leaf != nil && cert.Leaf.NotAfter.After(time.Now().Add(time.Minute))
	})
	assert.Equal(t, []string{"system:node:n", "bootstrapper"}, s.signed())
	r.stop()
}

// A node that was away for long requests a certificate as at the first time.
func TestExpired(t *testing.T) {
	s := newServer(t)
	opts := s.options(true)
	old := s.ca.issue(subject("n"), time.Now().Add(-50*time.Minute), time.Minute)
	cert, key := write(t, s.path("c.pem"), string(old.cert)), write(t, s.path("k.pem"), string(old.key))
	s.kubeconfig("kubelet.conf", "client-certificate: "+cert+", client-key: "+key)
	r := run(t, opts)
	eventually(t, "a certificate", func() bool { return len(r.c.valid().Certificate) > 0 })
	assert.Equal(t, []string{"bootstrapper"}, s.signed())
	r.stop()

	// Without a bootstrap kubeconfig the log names the file.
	require.NoError(t, os.RemoveAll(opts.CertDir))
	s.kubeconfig("kubelet.conf", "client-certificate: "+cert+", client-key: "+key)
	opts.BootstrapKubeconfig = ""
	lines := make(chan string, 100)
	opts.Logger = logger(lines)
	r = run(t, opts)
	for line := range lines {
		if strings.Contains(line, "has expired or is missing") {
			assert.Contains(t, line, opts.Kubeconfig)
			break
		}
	}
	assert.Empty(t, whoami(t, r.c))
	r.stop()
}

func TestBadBootstrap(t *testing.T) {
	s := newServer(t)
	opts := s.options(true)
	opts.BootstrapKubeconfig = s.path("missing.conf")
	_, err := Load("n", opts)
	require.ErrorContains(t, err, "bootstrap kubeconfig "+s.path("missing.conf"))
	require.ErrorContains(t, err, s.path("kubelet.conf"))
	opts = s.options(true)
	require.NoError(t, os.MkdirAll(opts.CertDir, 0o700))
	write(t, filepath.Join(opts.CertDir, "kubelet-client-current.pem"), "garbage")
	_, err = Load("n", opts)
	require.ErrorContains(t, err, opts.CertDir)
	_, err = Load("n", Options{Kubeconfig: "x", Rotate: true})
	require.ErrorContains(t, err, "no directory")
}

// Of a certificate that is in the kubeconfig, as kubeadm once gave it to control planes, a
// copy goes to the directory, and a node's own one is requested.
func TestInlineCertificate(t *testing.T) {
	s := newServer(t)
	admin := s.ca.issue(pkix.Name{CommonName: "admin"}, time.Now().Add(-time.Minute), time.Hour)
	s.kubeconfig("kubelet.conf", "client-certificate-data: "+base64Of(admin.cert)+", client-key-data: "+
		base64Of(admin.key))
	opts := s.options(true)
	opts.BootstrapKubeconfig = ""
	r := run(t, opts)
	// The connection of the first certificate is closed when there is a new one.
	eventually(t, "a node's certificate", func() bool { return whoami(t, r.c) == "system:node:n" })
	assert.Equal(t, []string{"admin"}, s.signed())
	r.stop()
}
