package http

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"
)

// client has the transport that requests are made with. One goroutine owns it.
type client struct {
	given                     http.RoundTripper
	caFile, certFile, keyFile string

	// own is made of files of that sum, nil if not yet.
	own *http.Transport
	sum [sha256.Size]byte
}

func newClient(opts Options) *client {
	return &client{given: opts.Transport, caFile: opts.CAFile, certFile: opts.CertFile, keyFile: opts.KeyFile}
}

// transport returns what to make a request with: another one, with connections of
// its own, after one of the files has changed.
func (c *client) transport() (http.RoundTripper, error) {
	if c.given != nil {
		return c.given, nil
	}
	ca, err := readOptional(c.caFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA file: %w", err)
	}
	cert, err := readOptional(c.certFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate file: %w", err)
	}
	key, err := readOptional(c.keyFile)
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
			return nil, fmt.Errorf("CA file %s: no certificate in PEM in it", c.caFile)
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
	// With a TLS configuration of its own it speaks HTTP/1.1, where a connection that
	// went dead is given up with the request that runs into its timeout.
	c.own = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        config,
		IdleConnTimeout:        90 * time.Second, // that of Go's default transport
		MaxResponseHeaderBytes: 1 << 20,          // that which servers in Go take
	}
	c.sum = sum
	return c.own, nil
}

// readOptional reads a file if there is a name.
func readOptional(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	return os.ReadFile(name)
}

// close ends the connections that are kept open.
func (c *client) close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}
