package grpcprobe

import (
	"context"
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

// transport returns a transport for HTTP/2 without TLS, with prior knowledge, and for
// nothing else.
func (c *Client) transport() *http.Transport {
	open := c.Dial
	if open == nil {
		open = new(net.Dialer).DialContext
	}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := open(ctx, network, address)
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
