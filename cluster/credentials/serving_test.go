package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	opts := ServingOptions{CertDir: dir,
		Addresses: func() []v1.NodeAddress { return []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}} }}
	s, err := LoadServing("n", opts)
	require.NoError(t, err)
	cert, err := s.GetCertificate(nil)
	require.NoError(t, err)
	require.NoError(t, cert.Leaf.VerifyHostname("n"))
	require.NoError(t, cert.Leaf.VerifyHostname("192.0.2.1"))
	for _, name := range []string{"kubelet.crt", "kubelet.key"} {
		assert.Equal(t, os.FileMode(0o600), mode(t, filepath.Join(dir, name)))
	}
	again, err := LoadServing("n", opts)
	require.NoError(t, err)
	assert.Equal(t, cert.Certificate, again.current.Load().Certificate, "the next agent uses it again")

	expired := newAuthority(t).issue(pkix.Name{CommonName: "n"}, time.Now().Add(-time.Hour), time.Minute)
	write(t, filepath.Join(dir, "kubelet.crt"), string(expired.cert))
	write(t, filepath.Join(dir, "kubelet.key"), string(expired.key))
	again, err = LoadServing("n", opts)
	require.NoError(t, err)
	assert.True(t, again.current.Load().Leaf.NotAfter.After(time.Now()), "unless it has expired")

	write(t, filepath.Join(dir, "kubelet.key"), "garbage")
	_, err = LoadServing("n", opts)
	require.ErrorContains(t, err, "kubelet.key")
}

func TestServingFiles(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	put := func(name string) (string, string) {
		p := ca.issue(pkix.Name{CommonName: name}, time.Now().Add(-time.Minute), time.Hour)
		return write(t, dir+"/tls.crt", string(p.cert)), write(t, dir+"/tls.key", string(p.key))
	}
	cert, key := put("old")
	m := &kept{}
	s, err := LoadServing("n", ServingOptions{CertFile: cert, KeyFile: key, Metrics: m})
	require.NoError(t, err)
	name := func() string {
		c, err := s.GetCertificate(nil)
		require.NoError(t, err)
		return c.Leaf.Subject.CommonName
	}
	assert.Equal(t, "old", name())
	put("new")
	require.NoError(t, os.Chtimes(cert, time.Now(), time.Now().Add(time.Hour)))
	assert.Equal(t, "old", name(), "it is looked at once a minute")
	s.checked = time.Now().Add(-filesPeriod)
	assert.Equal(t, "new", name())
	require.Len(t, m.expires, 2)
	assert.True(t, m.expires[1].Equal(s.current.Load().Leaf.NotAfter))
	require.Len(t, m.ages, 1)
	assert.InDelta(t, time.Minute, m.ages[0], float64(time.Minute), "since the old one is valid")
	write(t, key, "garbage")
	require.NoError(t, os.Chtimes(key, time.Now(), time.Now().Add(2*time.Hour)))
	s.checked = time.Now().Add(-filesPeriod)
	assert.Equal(t, "new", name(), "the old one is used until both files fit")

	for _, opts := range []ServingOptions{{}, {CertFile: "x"}, {CertDir: "x", Client: kubernetes.New(nil)},
		{CertFile: "/no/cert", KeyFile: "/no/key"}} {
		_, err := LoadServing("n", opts)
		require.Error(t, err)
	}
}

func TestServingRequest(t *testing.T) {
	server := newServer(t)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, BearerToken: "system:node:n",
		TLSClientConfig: rest.TLSClientConfig{CAData: server.ca.pem()}})
	require.NoError(t, err)
	addresses := []v1.NodeAddress{
		{Type: v1.NodeHostName, Address: "n"}, {Type: v1.NodeInternalIP, Address: "192.0.2.2"}, {Type: v1.NodeExternalIP, Address: "192.0.2.1"},
		{Type: v1.NodeInternalDNS, Address: "n.internal"}, {Type: "Other", Address: "192.0.2.3"},
	}
	opts := ServingOptions{CertDir: server.path("pki"), Client: client,
		Addresses: func() []v1.NodeAddress { return addresses }}
	s, err := LoadServing("n", opts)
	require.NoError(t, err)
	_, err = s.GetCertificate(nil)
	require.ErrorIs(t, err, ErrNoCertificate)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var cert *tls.Certificate
	eventually(t, "a certificate", func() bool { cert, err = s.GetCertificate(nil); return err == nil })
	assert.Equal(t, []string{"n", "n.internal"}, cert.Leaf.DNSNames)
	assert.Len(t, cert.Leaf.IPAddresses, 2)
	assert.Equal(t, "192.0.2.1", cert.Leaf.IPAddresses[0].String())
	server.set(func() {
		for _, csr := range server.requests {
			assert.Equal(t, certificatesv1.KubeletServingSignerName, csr.Spec.SignerName)
			assert.Contains(t, csr.Spec.Usages, certificatesv1.UsageServerAuth)
		}
	})
	assert.Equal(t, os.FileMode(0o600), mode(t, server.path("pki/kubelet-server-current.pem")))
	cancel()
	require.NoError(t, <-done)
	again, err := LoadServing("n", opts)
	require.NoError(t, err)
	_, err = again.GetCertificate(nil)
	require.NoError(t, err)
	assert.Nil(t, servingTemplate("n", []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n"}}, false), "no address")
	assert.Equal(t, []string{"n"}, servingTemplate("n", []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n"}}, true).DNSNames)
	assert.Nil(t, servingTemplate("n", nil, true))
	assert.Equal(t, []net.IP{net.ParseIP("192.0.2.9")},
		servingTemplate("n", []v1.NodeAddress{{Type: v1.NodeHostName, Address: "192.0.2.9"}}, false).IPAddresses)
	require.False(t, errors.Is(err, ErrNoCertificate))
}
