package grpcprobe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Client makes health checks, each on a connection of its own. The zero value is
// valid. It is safe for concurrent use.
type Client struct {
	// UserAgent is sent with each check. Default: that of net/http.
	UserAgent string
	// TLS encrypts the connections. The certificate of the server is not verified: it has no meaning for the health.
	TLS bool
	// Dial opens connections. Default: a [net.Dialer]'s DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Probe requests the health of the service from the server at the address, and reports
// whether it is SERVING. The empty service stands for the server as a whole. The
// message is the answer of the server or the reason why there is none, in kubelet's
// words. A server that does not answer within the timeout, or in another protocol,
// is not healthy, and neither is one that sends more than 256 frames or 256 KiB.
//
// If ctx ends before the timeout, Probe returns false soon. Then the result is not one
// of the server.
func (c *Client) Probe(ctx context.Context, address, service string,
	timeout time.Duration) (healthy bool, message string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := c.transport().NewClientConn(ctx, "http", address)
	var network net.Error
	switch {
	case errors.As(err, &network) && network.Timeout():
		return false, fmt.Sprintf("timeout: failed to connect service %q within %v: %v", address, timeout,
			context.DeadlineExceeded)
	case err != nil:
		return false, fmt.Sprintf("error: failed to connect service at %q: %v", address, err)
	}
	defer func() { _ = conn.Close() }()
	// net/http waits without a limit when it writes to a server that does not read, also
	// when it only reads or closes the response.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()

	status, err := c.check(ctx, conn, address, service)
	var rpc *rpcError
	isRPC := errors.As(err, &rpc)
	switch {
	case err == nil && status == serving:
		return true, "service healthy"
	case err == nil:
		return false, fmt.Sprintf("service unhealthy (responded with %q)", status)
	case isRPC && rpc.code == codeUnimplemented:
		return false, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " +
			rpc.message
	case isRPC && rpc.code == codeDeadlineExceeded, errors.Is(ctx.Err(), context.DeadlineExceeded):
		return false, fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)
	default:
		return false, "error: health rpc probe failed: " + err.Error()
	}
}

// transport returns a transport for HTTP/2 and for nothing else. It has no knowledge of TLS, which is below it.
func (c *Client) transport() *http.Transport {
	open := c.Dial
	if open == nil {
		open = new(net.Dialer).DialContext
	}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := open(ctx, network, address)
			if err == nil && c.TLS {
				conn, err = encrypt(ctx, conn)
			}
			if err != nil {
				return nil, err
			}
			return newFrames(conn), nil
		},
		Protocols:              new(http.Protocols),
		DisableCompression:     true, // sends no Accept-Encoding
		MaxResponseHeaderBytes: maxMessage,
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// encrypt makes the TLS handshake. The server must choose HTTP/2, as gRPC requires.
func encrypt(ctx context.Context, conn net.Conn) (net.Conn, error) {
	encrypted := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http2}})
	err := encrypted.HandshakeContext(ctx)
	if err == nil && encrypted.ConnectionState().NegotiatedProtocol != http2 {
		err = errors.New("the server does not choose HTTP/2 in the TLS handshake (ALPN)")
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return encrypted, nil
}

// http2 is the name of HTTP/2 in a TLS handshake.
const http2 = "h2"
