package http

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// maxFile is the limit for a file of certificates or a key, in bytes.
const maxFile = 16 << 20

// client holds the transport of the requests. One goroutine owns it.
type client struct {
	given                     http.RoundTripper
	caFile, certFile, keyFile string
	reader                    safefile.Reader

	// own is the transport made from files with that checksum. It is nil until the first
	// request.
	own *http.Transport
	sum [sha256.Size]byte
}

func newClient(opts Options) *client {
	return &client{given: opts.Transport, caFile: opts.CAFile, certFile: opts.CertFile, keyFile: opts.KeyFile}
}

// transport returns the transport for the next request. After a change of the files it
// is a new one, with new connections.
func (c *client) transport(ctx context.Context) (http.RoundTripper, error) {
	if c.given != nil {
		return c.given, nil
	}
	ca, err := c.readOptional(ctx, c.caFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA file: %w", err)
	}
	cert, err := c.readOptional(ctx, c.certFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate file: %w", err)
	}
	key, err := c.readOptional(ctx, c.keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the key file: %w", err)
	}
	sum := sha256.Sum256(bytes.Join([][]byte{ca, cert, key}, []byte{0}))
	if c.own != nil && sum == c.sum {
		return c.own, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.caFile != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("CA file %s: it holds no certificate in PEM", c.caFile)
		}
	}
	if c.certFile != "" {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("certificate file %s and key file %s: %w", c.certFile, c.keyFile, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	c.close()
	// A transport with a TLS configuration of its own uses HTTP/1.1. There a dead
	// connection is closed with the request that exceeds its timeout.
	c.own = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        config,
		IdleConnTimeout:        90 * time.Second, // as Go's default transport
		MaxResponseHeaderBytes: 1 << 20,          // as Go's servers accept
	}
	c.sum = sum
	return c.own, nil
}

// readOptional reads the file. It returns nil for an empty name.
func (c *client) readOptional(ctx context.Context, name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	return c.reader.ReadFile(ctx, name, maxFile)
}

// close closes idle connections.
func (c *client) close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}
