package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// pair is a certificate and its key in PEM.
type pair struct{ cert, key []byte }

// authority is a certificate authority.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{t, cert, key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// sign returns a certificate in PEM, that is valid from and for so long.
func (a *authority) sign(subject pkix.Name, ips []net.IP, names []string, public any, from time.Time,
	lasts time.Duration) []byte {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject, IPAddresses: ips, DNSNames: names,
		NotBefore: from, NotAfter: from.Add(lasts),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth,
			x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	require.NoError(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue returns a certificate and its key.
func (a *authority) issue(subject pkix.Name, from time.Time, lasts time.Duration) pair {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	return pair{
		a.sign(subject, []net.IP{net.IPv4(127, 0, 0, 1)}, nil, key.Public(), from, lasts),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
	}
}

// apiServer signs what it is asked to sign, and says who calls.
type apiServer struct {
	*httptest.Server
	ca   *authority
	dir  string
	life time.Duration // of certificates
	// fresh means that they begin to be valid when they are signed, and not a minute before.
	fresh bool
	wrong []byte // what each request gets in place of a certificate

	mu       sync.Mutex
	requests map[string]*certificatesv1.CertificateSigningRequest
	users    []string // who sent the signing requests
	conns    map[string]bool
	hold     bool   // do not sign
	away     bool   // answer nothing but that
	refused  string // the user that gets the status 401
}

func newServer(t *testing.T) *apiServer {
	s := &apiServer{ca: newAuthority(t), dir: t.TempDir(), life: time.Hour,
		requests: map[string]*certificatesv1.CertificateSigningRequest{}, conns: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /whoami", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.conns[r.RemoteAddr] = true
		s.mu.Unlock()
		_, _ = io.WriteString(w, user(r))
	})
	const csrs = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	mux.HandleFunc("POST "+csrs, func(w http.ResponseWriter, r *http.Request) {
		if user(r) == "" {
			status(w, metav1.StatusReasonUnauthorized, http.StatusUnauthorized)
			return
		}
		csr := &certificatesv1.CertificateSigningRequest{}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, csr) // JSON or protobuf
		}
		if err != nil {
			status(w, metav1.StatusReasonBadRequest, http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		csr.Name, csr.ResourceVersion = csr.GenerateName+time.Now().Format("150405.000000000"), "1"
		csr.Name = strings.ReplaceAll(csr.Name, ".", "-")
		csr.UID = types.UID(csr.Name)
		if !s.hold {
			s.sign(csr)
		}
		s.requests[csr.Name] = csr
		s.users = append(s.users, user(r))
		reply(w, csr)
	})
	mux.HandleFunc("GET "+csrs, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("sendInitialEvents") != "" {
			status(w, metav1.StatusReasonInvalid, http.StatusUnprocessableEntity) // as an old server
			return
		}
		if r.URL.Query().Get("watch") != "" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		list := &certificatesv1.CertificateSigningRequestList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		name := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
		if csr := s.requests[name]; csr != nil {
			list.Items = append(list.Items, *csr)
		}
		reply(w, list)
	})
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var away bool
		var refused string
		s.set(func() { away, refused = s.away, s.refused })
		if refused != "" && user(r) == refused {
			http.Error(w, "refused", http.StatusUnauthorized)
			return
		}
		if away {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	serving := s.ca.issue(pkix.Name{CommonName: "server"}, time.Now().Add(-time.Minute), time.Hour)
	cert, err := tls.X509KeyPair(serving.cert, serving.key)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.cert)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
		MinVersion: tls.VersionTLS12}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// user returns who calls.
func user(r *http.Request) string {
	if len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func (s *apiServer) sign(csr *certificatesv1.CertificateSigningRequest) {
	block, _ := pem.Decode(csr.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	require.NoError(s.ca.t, err)
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		{Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue}}
	before := time.Minute
	if s.fresh {
		before = 0
	}
	if s.wrong != nil {
		csr.Status.Certificate = s.wrong
		return
	}
	csr.Status.Certificate = s.ca.sign(request.Subject, request.IPAddresses, request.DNSNames, request.PublicKey,
		time.Now().Add(-before), s.life+before)
}

func reply(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	switch o := object.(type) {
	case *certificatesv1.CertificateSigningRequest:
		o.APIVersion, o.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
	case *certificatesv1.CertificateSigningRequestList:
		o.APIVersion, o.Kind = "certificates.k8s.io/v1", "CertificateSigningRequestList"
	}
	_ = json.NewEncoder(w).Encode(object)
}

func status(w http.ResponseWriter, reason metav1.StatusReason, code int32) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Reason: reason, Code: code})
}

func (s *apiServer) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *apiServer) path(name string) string { return filepath.Join(s.dir, name) }

// kubeconfig writes a kubeconfig with the fields of the user.
func (s *apiServer) kubeconfig(name, userFields string) string {
	ca := write(s.ca.t, s.path("ca.crt"), string(s.ca.pem()))
	return write(s.ca.t, s.path(name), "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, "+
		"context: {cluster: k, user: u}}]\n"+
		"clusters: [{name: k, cluster: {server: '"+s.URL+"', certificate-authority: '"+ca+
		"'}}]\nusers: [{name: u, user: {"+userFields+"}}]\n")
}

// signed returns who sent the signing requests.
func (s *apiServer) signed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.users...)
}

func base64Of(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
