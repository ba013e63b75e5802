package harness

import (
	"bytes"
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
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Where the two listen, each in the network namespace of its APIServer.
const (
	etcdAddr      = "127.0.0.1:2379"
	etcdPeerAddr  = "127.0.0.1:2380"
	apiServerAddr = "127.0.0.1:6443"
)

// apiServerToken is what the only user of an APIServer shows. Nobody else is in
// the namespace.
const apiServerToken = "e2e"

// admissionPlugins are those that are on by default. Each of them may change a pod or
// refuse it for reasons that no node knows, such as a namespace's quota.
var admissionPlugins = []string{
	"NamespaceLifecycle", "LimitRanger", "ServiceAccount", "TaintNodesByCondition", "PodSecurity", "Priority",
	"DefaultTolerationSeconds", "DefaultStorageClass", "StorageObjectInUseProtection", "PodGroupProtection",
	"PersistentVolumeClaimResize", "RuntimeClass", "CertificateApproval", "CertificateSigning",
	"ClusterTrustBundleAttest",
	"CertificateSubjectRestriction", "DefaultIngressClass", "PodTopologyLabels", "PodGroupProtection",
	"NodeDeclaredFeatureValidator", "PodResizeValidator", "MutatingAdmissionPolicy",
	"MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota",
}

// APIServer is a kube-apiserver over an etcd, both alone in a network namespace.
// It has no admission plugins: what it says of an object is what defaulting and
// validation say. Its feature gates are the default ones and ContainerStopSignals:
// without that it drops a field that agents act on.
type APIServer struct {
	dir        string
	net        *NetNS
	client     *http.Client
	etcd, kube *process
}

// NewAPIServer starts an API server that ends with the test.
func NewAPIServer(t testing.TB) *APIServer {
	t.Helper()
	Need(t, "etcd", "ip")
	bin := KubernetesBinary(t, "kube-apiserver")
	dir, err := os.MkdirTemp("", "kk")
	if err != nil {
		t.Fatal(err)
	}
	s := &APIServer{dir: dir}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last words of etcd:\n%s\nof kube-apiserver:\n%s", tail(s.path("etcd.log"), 10),
				tail(s.path("kube-apiserver.log"), 20))
		}
		s.close(t)
	})
	if s.net, err = NewNetNS(); err != nil {
		Skip(t, "needs network namespaces: %v", err)
	}
	authority, err := s.writeFiles()
	if err != nil {
		t.Fatal(err)
	}
	s.client = &http.Client{Transport: &http.Transport{
		DialContext:       s.net.DialContext,
		TLSClientConfig:   &tls.Config{RootCAs: authority},
		ForceAttemptHTTP2: true,
	}}
	s.etcd, err = start(s.net, s.path("etcd.log"), nil, "etcd",
		"--data-dir", s.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", "http://"+etcdAddr, "--advertise-client-urls", "http://"+etcdAddr,
		"--listen-peer-urls", "http://"+etcdPeerAddr, "--initial-advertise-peer-urls", "http://"+etcdPeerAddr,
		"--initial-cluster", "default=http://"+etcdPeerAddr)
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(apiServerAddr)
	s.kube, err = start(s.net, s.path("kube-apiserver.log"), nil, bin,
		"--etcd-servers", "http://"+etcdAddr,
		"--bind-address", host, "--advertise-address", host, "--secure-port", port,
		"--tls-cert-file", s.path("cert.pem"), "--tls-private-key-file", s.path("key.pem"),
		"--service-account-issuer", "https://e2e", "--service-account-signing-key-file", s.path("key.pem"),
		"--service-account-key-file", s.path("key.pem"),
		"--service-cluster-ip-range", "10.99.0.0/24", "--endpoint-reconciler-type", "none",
		"--token-auth-file", s.path("tokens.csv"), "--authorization-mode", "AlwaysAllow",
		"--disable-admission-plugins", strings.Join(admissionPlugins, ","),
		"--allow-privileged", "--profiling=false", "--feature-gates", "ContainerStopSignals=true,"+
			"EmptyDirVolumeMode=true,AtomicWriteVolumeUserFields=true,GRPCContainerProbeTLS=true,"+
			"VolumeBindMountOptions=true")
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, 2*time.Minute, "kube-apiserver ready", func() error {
		for name, p := range map[string]*process{"etcd": s.etcd, "kube-apiserver": s.kube} {
			if p.exited() {
				t.Fatalf("%s ended: %v\n%s", name, p.err, tail(s.path(name+".log"), 20))
			}
		}
		status, body, err := s.Do(t.Context(), http.MethodGet, "/readyz", nil)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d: %s", status, body)
		}
		return err
	})
	return s
}

// Do sends a request with a JSON body and returns the answer's status and body.
// It may be called from several goroutines.
func (s *APIServer) Do(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+apiServerAddr+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+apiServerToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// DryRunPod asks for the creation of a pod, given in JSON, without having it
// stored, and returns the answer: the pod with its defaults or a v1.Status.
func (s *APIServer) DryRunPod(ctx context.Context, namespace string,
	pod []byte) (status int, answer []byte, err error) {
	return s.Do(ctx, http.MethodPost, "/api/v1/namespaces/"+url.PathEscape(namespace)+
		"/pods?dryRun=All&fieldValidation=Strict", pod)
}

func (s *APIServer) path(name string) string { return filepath.Join(s.dir, name) }

// close ends what runs and removes what it left.
func (s *APIServer) close(t testing.TB) {
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	for _, p := range []*process{s.kube, s.etcd} {
		if p == nil {
			continue
		}
		// Nothing of them is kept, so they need not take their time.
		if err := p.stop(syscall.SIGKILL, 10*time.Second); err != nil {
			t.Log(err)
		}
	}
	if s.net != nil {
		s.net.Close()
	}
	if err := os.RemoveAll(s.dir); err != nil {
		t.Log(err)
	}
}

// writeFiles writes a key, a certificate for it and the list of users, and
// returns whom a client must trust.
func (s *APIServer) writeFiles() (*x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(apiServerAddr)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.ParseIP(host)},
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, content := range map[string][]byte{
		"cert.pem":   cert,
		"key.pem":    pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}),
		"tokens.csv": []byte(apiServerToken + ",e2e,e2e,system:masters\n"),
	} {
		if err := os.WriteFile(s.path(name), content, 0o600); err != nil {
			return nil, err
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool, nil
}
