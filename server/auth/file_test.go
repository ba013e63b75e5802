package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeletkit/kubeletkit/server/auth"
)

// authority is a certificate authority.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	return a
}

// issue signs a certificate that is valid for an hour, by itself if parent is nil.
func issue(t *testing.T, template *x509.Certificate, parent *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber, template.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Minute)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	signer, signerKey := template, key
	if parent != nil {
		signer, signerKey = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, key.Public(), signerKey)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert, key
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// client returns a client's certificate.
func (a *authority) client(user string, groups ...string) *x509.Certificate {
	cert, _ := issue(a.t, &x509.Certificate{Subject: pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, a)
	return cert
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, content, 0o600))
}

func by(certs ...*x509.Certificate) *http.Request {
	req := httptest.NewRequest(http.MethodGet, "/pods", nil)
	req.TLS = &tls.ConnectionState{PeerCertificates: certs}
	return req
}

func TestClientCA(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	path := filepath.Join(t.TempDir(), "ca.crt")
	write(t, path, a.pem())
	ca, err := auth.NewClientCA(path, logr.Discard())
	require.NoError(t, err)

	user, err := ca.Authenticate(by(a.client("alice", "readers", "writers")))
	require.NoError(t, err)
	assert.Equal(t, "alice", user.Username)
	assert.Equal(t, []string{"readers", "writers"}, user.Groups)
	assert.Contains(t, user.Extra["authentication.kubernetes.io/credential-id"][0], "X509SHA256=")

	user, err = ca.Authenticate(by())
	require.NoError(t, err)
	assert.Nil(t, user, "no certificate")
	user, err = ca.Authenticate(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pods", nil))
	require.NoError(t, err)
	assert.Nil(t, user, "no TLS")

	server, _ := issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "server"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, a)
	expired, _ := issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "old"},
		NotAfter: time.Now().Add(-time.Second), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, a)
	for name, cert := range map[string]*x509.Certificate{
		"another authority": other.client("alice"), "a server's": server, "expired": expired, "no name": a.client(""), "the authority's": other.cert,
	} {
		user, err := ca.Authenticate(by(cert))
		require.Error(t, err, name)
		assert.Nil(t, user, name)
	}

	// An authority between the two.
	between := &authority{t: t}
	between.cert, between.key = issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "between"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, a)
	leaf := between.client("bob")
	_, err = ca.Authenticate(by(leaf))
	require.Error(t, err)
	user, err = ca.Authenticate(by(leaf, between.cert))
	require.NoError(t, err)
	assert.Equal(t, "bob", user.Username)
}

func TestUIDOfCertificate(t *testing.T) {
	a := newAuthority(t)
	path := filepath.Join(t.TempDir(), "ca.crt")
	write(t, path, a.pem())
	ca, err := auth.NewClientCA(path, logr.Discard())
	require.NoError(t, err)
	for _, tt := range []struct {
		name string
		uids []string
		want string
		err  bool
	}{
		{"none", nil, "", false},
		{"one", []string{"u1"}, "u1", false},
		{"two", []string{"u1", "u2"}, "", true},
		{"empty", []string{""}, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject := pkix.Name{CommonName: "alice"}
			for _, uid := range tt.uids {
				subject.ExtraNames = append(subject.ExtraNames,
					pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: uid})
			}
			cert, _ := issue(t,
				&x509.Certificate{Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, a)
			user, err := ca.Authenticate(by(cert))
			if tt.err {
				require.ErrorContains(t, err, "UID")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "alice", user.Username)
			assert.Equal(t, tt.want, user.UID)
		})
	}
}

// Files are read again, and what cannot be used does not count.
func TestFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		old, fresh := newAuthority(t), newAuthority(t)
		path := filepath.Join(dir, "ca.crt")
		write(t, path, old.pem())
		ca, err := auth.NewClientCA(path, logr.Discard())
		require.NoError(t, err)
		valid := func(a *authority) bool {
			_, err := ca.Authenticate(by(a.client("alice")))
			return err == nil
		}
		write(t, path, fresh.pem())
		assert.True(t, valid(old), "not yet")
		time.Sleep(11 * time.Second)
		assert.False(t, valid(old))
		assert.True(t, valid(fresh))
		for _, broken := range []string{"", "no certificate"} {
			write(t, path, []byte(broken))
			time.Sleep(11 * time.Second)
			assert.True(t, valid(fresh), "the file is broken")
		}
		require.NoError(t, os.Remove(path))
		time.Sleep(11 * time.Second)
		assert.True(t, valid(fresh), "the file is gone")
		write(t, path, append(old.pem(), fresh.pem()...))
		time.Sleep(11 * time.Second)
		assert.True(t, valid(old) && valid(fresh))
	})
	_, err := auth.NewClientCA(filepath.Join(dir, "none"), logr.Discard())
	require.ErrorContains(t, err, "certificate authorities of clients")
}

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.csv")
	write(t, path, []byte("# people\nsecret1, alice,1,\"readers, system:masters\"\nsecret2,bob,2\n\n"))
	tokens, err := auth.NewTokenFile(path, logr.Discard())
	require.NoError(t, err)
	ask := func(header string) (*authenticationv1.UserInfo, error) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pods", nil)
		req.Header.Set("Authorization", header)
		return tokens.Authenticate(req)
	}
	user, err := ask("Bearer secret1")
	require.NoError(t, err)
	assert.Equal(t, &authenticationv1.UserInfo{Username: "alice", UID: "1",
		Groups: []string{"readers", "system:masters"}}, user)
	user, err = ask(" bearer secret2 ")
	require.NoError(t, err)
	assert.Equal(t, "bob", user.Username)
	for _, header := range []string{"", "Basic secret1", "Bearer", "Bearer ", "Bearer  secret1"} {
		user, err = ask(header)
		require.NoError(t, err, header)
		assert.Nil(t, user, header)
	}
	_, err = ask("Bearer secret3")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret3")
}

func TestTokenFilesThatAreWrong(t *testing.T) {
	for name, content := range map[string]string{
		"too few": "secret,alice\n", "too many": "secret,alice,1,a,b\n", "twice": "secret,a,1\nsecret,b,2\n", "no user": "secret,,1\n", "no token": ",a,1\n", "quotes": "secret,\"a,1\n",
	} {
		path := filepath.Join(t.TempDir(), "tokens.csv")
		write(t, path, []byte(content))
		_, err := auth.NewTokenFile(path, logr.Discard())
		require.ErrorContains(t, err, path, name)
		assert.NotContains(t, err.Error(), "secret", name)
	}
}

const policy = `# what clients may do
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: logs}
rules:
- {apiGroups: [""], resources: [nodes/log, "*/stats"], verbs: [get]}
- {apiGroups: [""], resources: [nodes/proxy], resourceNames: [n2], verbs: ["*"]}
- {apiGroups: [apps], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: logs}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: logs}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}
- {kind: ServiceAccount, namespace: monitoring, name: scraper}
`

func TestRBACFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rbac.yaml")
	write(t, path, []byte(policy))
	rbac, err := auth.NewRBACFile(path, logr.Discard())
	require.NoError(t, err)
	for _, tc := range []struct {
		user, group, verb, subresource, node string
		want                                 bool
	}{
		{"alice", "", "get", "log", "n1", true},
		{"bob", "readers", "get", "log", "n1", true},
		{"system:serviceaccount:monitoring:scraper", "", "get", "log", "n1", true},
		{"bob", "", "get", "log", "n1", false},
		{"readers", "alice", "get", "log", "n1", false},
		{"alice", "", "create", "log", "n1", false},
		{"alice", "", "", "log", "n1", false},
		{"alice", "", "get", "stats", "n1", true},
		{"alice", "", "get", "metrics", "n1", false},
		{"alice", "", "get", "proxy", "n1", false},
		{"alice", "", "create", "proxy", "n2", true},
		{"alice", "", "", "proxy", "n2", true},
	} {
		allowed, err := rbac.Authorize(t.Context(), &authenticationv1.UserInfo{Username: tc.user,
			Groups: []string{tc.group}},
			&authorizationv1.ResourceAttributes{Verb: tc.verb, Version: "v1", Resource: "nodes",
				Subresource: tc.subresource, Name: tc.node})
		require.NoError(t, err)
		assert.Equal(t, tc.want, allowed, "%+v", tc)
	}
}

func TestRBACFilesThatAreWrong(t *testing.T) {
	for name, tc := range map[string]struct{ content, want string }{
		"another kind":  {"apiVersion: v1\nkind: Pod\n", "v1 Pod"},
		"a role":        {"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n", "Role: want"},
		"unknown field": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nrule: []\n", "rule"},
		"no such role":  {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: b}\nroleRef: {kind: ClusterRole, name: none}\n", "ClusterRoleBinding b: there is no ClusterRole none"},
		"not even YAML": {"{", "yaml"},
	} {
		path := filepath.Join(t.TempDir(), "rbac.yaml")
		write(t, path, []byte(tc.content))
		_, err := auth.NewRBACFile(path, logr.Discard())
		require.ErrorContains(t, err, tc.want, name)
	}
}
