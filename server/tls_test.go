package server_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/auth"
)

// newCertificate returns a certificate that signs itself, for clients and servers.
func newCertificate(t testing.TB, name string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"node"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serveTLS serves until stop.
func serveTLS(t testing.TB, l net.Listener, h http.Handler, opts server.TLSOptions) (stop func()) {
	t.Helper()
	closesConns(t, l)
	if opts.GetCertificate == nil {
		cert := newCertificate(t, "node")
		opts.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil }
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(ctx, l, h, opts) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// dialTLS connects with the certificate, none if it is nil.
func dialTLS(p *pipes, cert *tls.Certificate) *tls.Conn {
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	return tls.Client(p.dial(), config)
}

// byName is an authenticator that believes the name in any certificate, and the token "valid".
type byName struct{}

func (byName) Authenticate(req *http.Request) (*authenticationv1.UserInfo, error) {
	if certs := req.TLS.PeerCertificates; len(certs) > 0 {
		return &authenticationv1.UserInfo{Username: certs[0].Subject.CommonName}, nil
	}
	switch auth.BearerToken(req) {
	case "":
		return nil, nil
	case "valid":
		return &authenticationv1.UserInfo{Username: "token"}, nil
	default:
		return nil, errors.New("no such token")
	}
}

func newGuard(t testing.TB) *auth.Guard {
	t.Helper()
	guard, err := auth.New(auth.Options{NodeName: "node", Authenticators: []auth.Authenticator{byName{}},
		Authorizer: auth.AlwaysAllow{}})
	require.NoError(t, err)
	return guard
}

func TestServeTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes("192.0.2.1")
		stop := serveTLS(t, l, newGuard(t).Protect(server.Kubelet(newManyPods(), server.Options{})),
			server.TLSOptions{})
		for _, tc := range []struct {
			cert  *tls.Certificate
			token string
			code  int
		}{
			{newCertificate(t, "alice"), "", http.StatusOK}, {nil, "valid", http.StatusOK}, {nil, "", http.StatusUnauthorized}, {nil, "wrong", http.StatusUnauthorized},
		} {
			c := dialTLS(l, tc.cert)
			_, err := fmt.Fprintf(c, "GET /pods HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer %s\r\n\r\n", tc.token)
			require.NoError(t, err)
			resp := answer(t, c)
			assert.Equal(t, tc.code, resp.StatusCode)
			assert.Equal(t, "http/1.1", c.ConnectionState().NegotiatedProtocol)
			assert.EqualValues(t, tls.VersionTLS13, c.ConnectionState().Version)
			_, _ = io.Copy(io.Discard, resp.Body)
			require.NoError(t, c.Close())
		}
		stop()
	})
}

func TestOptionsOfTLS(t *testing.T) {
	require.ErrorContains(t, server.ServeTLS(t.Context(), newPipes("192.0.2.1"), http.NotFoundHandler(),
		server.TLSOptions{}), "GetCertificate")
	synctest.Test(t, func(t *testing.T) {
		l := newPipes("192.0.2.1")
		stop := serveTLS(t, l, http.NotFoundHandler(), server.TLSOptions{MinVersion: tls.VersionTLS13})
		c := tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
		require.ErrorContains(t, c.Handshake(), "protocol version")
		stop()

		l = newPipes("192.0.2.1")
		stop = serveTLS(t, l, http.NotFoundHandler(),
			server.TLSOptions{CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}})
		c = tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
			CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}})
		require.ErrorContains(t, c.Handshake(), "handshake failure")
		c = tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11})
		require.Error(t, c.Handshake())
		stop()

		// A certificate that is not there yet fails the handshake, and nothing else.
		l = newPipes("192.0.2.1")
		stop = serveTLS(t, l, http.NotFoundHandler(),
			server.TLSOptions{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate,
				error) {
				return nil, errors.New("not yet")
			}})
		c = dialTLS(l, nil)
		require.Error(t, c.Handshake())
		stop()
	})
}

// Clients that are slow or send too much lose their connection, before anything is known of them.
func TestSlowAndHugeClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes("192.0.2.1")
		reached := 0
		stop := serveTLS(t, l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }),
			server.TLSOptions{})
		begin := time.Now()
		silent := l.dial() // never begins the handshake
		_, err := silent.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		assert.Equal(t, 10*time.Second, time.Since(begin))

		garbage := l.dial()
		_, err = garbage.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		require.NoError(t, err)
		text, _ := io.ReadAll(garbage)
		assert.Contains(t, string(text), "Client sent an HTTP request to an HTTPS server")

		slow := dialTLS(l, nil)
		_, err = slow.Write([]byte("GET / HTTP/1.1\r\nHost: "))
		require.NoError(t, err)
		begin = time.Now()
		_, _ = io.ReadAll(slow)
		assert.LessOrEqual(t, time.Since(begin), 10*time.Second)

		huge := dialTLS(l, nil)
		go func() { // the server stops reading
			_, _ = fmt.Fprintf(huge, "GET / HTTP/1.1\r\nHost: node\r\nX: %s\r\n\r\n", strings.Repeat("x", 1<<20))
		}()
		resp := answer(t, huge)
		assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
		_ = huge.NetConn().Close()

		idle := dialTLS(l, nil)
		ask(t, idle, "/", "node")
		_, _ = io.Copy(io.Discard, answer(t, idle).Body)
		begin = time.Now()
		_, _ = io.ReadAll(idle)
		assert.Equal(t, 90*time.Second, time.Since(begin))
		assert.Equal(t, 1, reached)
		stop()
	})
}

// A port has 500 connections to clients that are not known, and as many as they like to those
// that are. These may pause.
func TestTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes("192.0.2.1")
		follow := make(chan struct{})
		stop := serveTLS(t, l,
			newGuard(t).Protect(server.Trusted(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, _ = w.Write([]byte("line\n"))
				_ = http.NewResponseController(w).Flush()
				<-follow
				_, _ = w.Write([]byte(strings.Repeat("x", 1<<16)))
			}))), server.TLSOptions{})
		alice := newCertificate(t, "alice")
		var followers []*bufio.Reader
		var conns []net.Conn
		for range 150 {
			c := dialTLS(l, alice)
			ask(t, c, "/containerLogs/a/b/c", "node")
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			r = bufio.NewReader(resp.Body)
			line, err := r.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "line\n", line)
			followers, conns = append(followers, r), append(conns, c.NetConn())
		}
		var strangers []net.Conn
		for range 1000 { // none of them begins a handshake
			strangers = append(strangers, l.dial())
		}
		synctest.Wait()
		c := dialTLS(l, alice)
		ask(t, c, "/containerLogs/a/b/c", "node")
		assert.Equal(t, http.StatusOK, answer(t, c).StatusCode, "one of them gave way")
		close(follow)
		time.Sleep(time.Hour) // longer than others may take to receive something
		for _, r := range followers {
			data, err := io.ReadAll(r)
			require.NoError(t, err)
			assert.Len(t, data, 1<<16)
		}
		for _, s := range strangers {
			_, err := s.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		}
		for _, c := range append(conns, c.NetConn()) {
			_ = c.Close()
		}
		stop()
	})
}

// Clients without permission cannot keep out one that has it, in whatever state their connections are.
func TestStrangersDoNotKeepOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes("192.0.2.1")
		stop := serveTLS(t, l, newGuard(t).Protect(server.Trusted(http.NotFoundHandler())), server.TLSOptions{})
		begin := time.Now()
		var strangers []*tls.Conn
		for range 500 {
			c := dialTLS(l, nil)
			_, err := fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: node\r\nContent-Length: 10\r\n\r\n")
			require.NoError(t, err)
			strangers = append(strangers, c)
		}
		for _, c := range strangers { // the answer does not wait for the body
			resp := answer(t, c)
			assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
			assert.True(t, resp.Close)
			_ = c.NetConn().Close()
		}
		assert.Less(t, time.Since(begin), time.Second)
		stop()

		hold := make(chan struct{})
		l = newPipes("192.0.2.1")
		guarded := newGuard(t).Protect(server.Trusted(http.NotFoundHandler()))
		stop = serveTLS(t, l, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if len(req.TLS.PeerCertificates) == 0 {
				<-hold // such as a review of a token
			}
			guarded.ServeHTTP(w, req)
		}), server.TLSOptions{})
		strangers = nil
		for range 500 {
			c := dialTLS(l, nil)
			ask(t, c, "/", "node")
			strangers = append(strangers, c)
		}
		synctest.Wait()
		alice := dialTLS(l, newCertificate(t, "alice"))
		ask(t, alice, "/", "node")
		assert.Equal(t, http.StatusNotFound, answer(t, alice).StatusCode, "all are active, and the oldest gave way")
		close(hold)
		for _, c := range append(strangers, alice) {
			_ = c.NetConn().Close()
		}
		stop()
	})
}

// Who may do something cannot keep a connection without a limit of time by a body that never comes,
// and is not trusted in a request that is refused.
func TestTrustEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes("192.0.2.1")
		stop := serveTLS(t, l,
			newGuard(t).Protect(server.Trusted(http.HandlerFunc(func(w http.ResponseWriter,
				_ *http.Request) {
				_, _ = w.Write([]byte("ok"))
			}))), server.TLSOptions{})
		alice := newCertificate(t, "alice")
		c := dialTLS(l, alice)
		begin := time.Now()
		_, err := fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: node\r\nContent-Length: 1\r\n\r\n")
		require.NoError(t, err)
		_, _ = io.ReadAll(c)
		assert.Less(t, time.Since(begin), 15*time.Second)
		_ = c.NetConn().Close()

		var refused []*tls.Conn
		for range 550 {
			c := dialTLS(l, nil)
			for _, token := range []string{"valid", "wrong"} {
				_, err := fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer %s\r\n\r\n",
					token)
				require.NoError(t, err)
				resp := answer(t, c)
				_, _ = io.ReadAll(resp.Body)
			}
			refused = append(refused, c)
		}
		more := l.dial() // closes one more if the limit is reached
		synctest.Wait()
		open := 0
		for _, c := range refused {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				open++
			}
			_ = c.NetConn().Close()
		}
		_ = more.Close()
		assert.LessOrEqual(t, open, 500, "connections count again")
		stop()
	})
}

// When the server stops, requests that do not end are cut off.
func TestStopOfTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes("192.0.2.1")
		ended := make(chan struct{})
		stop := serveTLS(t, l, server.Trusted(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
			close(ended)
		})), server.TLSOptions{})
		c := dialTLS(l, nil)
		ask(t, c, "/", "node")
		resp := answer(t, c)
		stop()
		<-ended
		_, _ = io.ReadAll(resp.Body)
		_ = c.NetConn().Close()
	})
}
