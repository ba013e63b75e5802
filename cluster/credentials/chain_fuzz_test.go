package credentials

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever an API server gives as a signed certificate is refused, or is a certificate for the key.
func FuzzSignedChain(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // the same in each process
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(f, err)
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	for _, from := range []time.Time{time.Unix(1e9, 0), time.Unix(4e9, 0),
		time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject("n"), NotBefore: from,
			NotAfter: from.Add(time.Hour)}
		der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
		require.NoError(f, err)
		cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		f.Add(cert)
		f.Add(append([]byte("of n\n"), bytes.Repeat(cert, 2)...))
		f.Add(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"of": "n"}, Bytes: der}))
		f.Add(append(bytes.Clone(cert), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		chain, err := signedChain(data, keyPEM)
		if err != nil {
			return
		}
		again, err := signedChain(chain, keyPEM)
		require.NoError(t, err)
		require.Equal(t, string(chain), string(again))
		cert, err := tls.X509KeyPair(chain, keyPEM)
		require.NoError(t, err)
		require.Equal(t, key.Public(), cert.Leaf.PublicKey)
		r := &requester{current: func() *tls.Certificate { return &cert },
			template: func() *x509.CertificateRequest { return templateOf("192.0.2.1") }}
		require.GreaterOrEqual(t, r.untilDue(time.Now()), time.Duration(0))
		c := &Client{}
		c.current.Store(&cert)
		require.Equal(t, time.Now().Before(cert.Leaf.NotAfter), len(c.valid().Certificate) > 0)
	})
}
