package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
)

const (
	// writeTimeout is the time that a client may take to receive what is written at once,
	// such as a list of pods.
	writeTimeout = 30 * time.Second
	// trustedTimeout is the same for a client that is trusted: it may pause, as a person does who
	// reads a log page by page (kubelet: the time for a whole answer).
	trustedTimeout = 4 * time.Hour
	// bodyTimeout is the time that a client may take to send the body of a request.
	bodyTimeout = 10 * time.Second
	// maxConns is the maximum number of connections of a port to clients that are not known yet, or
	// are not allowed what they ask for, see [nodenet.MaxConns]. Hundreds of sessions may begin at
	// once. A connection of a stranger takes up to 70 kB.
	maxConns = 500
)

// deadlineListener accepts connections with a deadline for each write. Their clients are not trusted
// at first.
type deadlineListener struct{ net.Listener }

func (l deadlineListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &deadlineConn{Conn: c}, nil
}

// deadlineConn is a connection with a deadline for each write.
type deadlineConn struct {
	net.Conn
	trusted atomic.Bool
	// limit is the deadline that a handler has set.
	limit atomic.Pointer[time.Time]
}

// NetConn returns the connection, as [tls.Conn] does.
func (c *deadlineConn) NetConn() net.Conn { return c.Conn }

// SetWriteDeadline sets a deadline that ends writes before their own does. The zero time is none.
func (c *deadlineConn) SetWriteDeadline(t time.Time) error {
	c.limit.Store(&t)
	return c.Conn.SetWriteDeadline(t)
}

func (c *deadlineConn) Write(data []byte) (int, error) {
	timeout := writeTimeout
	if c.trusted.Load() {
		timeout = trustedTimeout
	}
	deadline := time.Now().Add(timeout)
	if limit := c.limit.Load(); limit != nil && !limit.IsZero() && limit.Before(deadline) {
		deadline = *limit
	}
	if err := c.Conn.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	return c.Conn.Write(data)
}

// withBodyDeadline limits the time in which a client sends the body of a request. The server also waits
// for a body that no handler reads: without a deadline, a client that does not send it keeps its
// connection busy for ever.
func withBodyDeadline(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength != 0 { // else there is no deadline
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		h.ServeHTTP(w, req)
	})
}

// connKey is the key of the connection in the context of its requests.
type connKey struct{}

// serverConn is a connection of a server.
type serverConn struct {
	nodenet.Conn
	// raw is the connection below TLS.
	raw *deadlineConn
}

func newServerConn(c net.Conn, limit *nodenet.ConnLimit) serverConn {
	raw := c
	if t, ok := c.(*tls.Conn); ok {
		raw = t.NetConn()
	}
	return serverConn{nodenet.Conn{Conn: c, Limit: limit}, raw.(*deadlineConn)}
}

// trust exempts the connection from the limit, and gives its client more time.
func (c serverConn) trust() {
	c.raw.trusted.Store(true)
	c.Exempt()
}

// distrust undoes trust. It has no effect on a connection that is not trusted.
func (c serverConn) distrust() {
	if c.raw.trusted.Swap(false) {
		c.Count()
	}
}

// distrusting returns a handler that ends the trust of the last request, and calls h.
func distrusting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if c, ok := req.Context().Value(connKey{}).(serverConn); ok {
			c.distrust()
		}
		h.ServeHTTP(w, req)
	})
}

// Trusted returns a handler that trusts its clients until their next request, and calls h. Their
// connections do not count for the limit of the port ([Serve], [ServeTLS]), and they have 4 hours to
// receive what is written at once. Put it behind a guard.
func Trusted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if c, ok := req.Context().Value(connKey{}).(serverConn); ok {
			c.trust()
		}
		h.ServeHTTP(w, req)
	})
}

// refuseRebinding refuses requests in connections to a loopback address if their Host is the name of
// another machine: a web page whose name resolves to the loopback address could read the answers
// (DNS rebinding). An IP address as Host cannot be such a name.
func refuseRebinding(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		at, _ := req.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if isLoopback(at) && !isLocal(req.Host) {
			http.Error(w, "the Host of a request to this machine's loopback address must be localhost or an IP address",
				http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, req)
	})
}

func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || strings.EqualFold(host, "localhost") // "" is HTTP/1.0
}

// isLoopback reports whether only this machine can connect to the address.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
