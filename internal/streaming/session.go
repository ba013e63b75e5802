package streaming

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// receiveTimeout is the time that a client has to receive all. A connection that is closed while data of
// the client is unread, or to which the client sends something later, such as a ping, is reset, and the
// client loses what it has not received yet, such as the exit code.
const receiveTimeout = 30 * time.Second

// Session is one request from its acceptance to the end of its streams. Its context ends
// when the client disconnects, the session is idle for too long, or the server stops.
type Session struct {
	server *Server
	ctx    context.Context
	cancel context.CancelFunc
	conn   *clientConn   // nil before the connection is taken over
	large  *frameBudget  // of frames of a WebSocket
	begins chan struct{} // has a value for each stream of SPDY that the client opens and accept has not received
	// over is set when all was written that the client is to receive.
	over atomic.Bool
	// ping sends something that the client ignores; nil if there is no such thing. Without pings, a
	// client that is gone is not noticed while its machine still has data for this one.
	ping atomic.Pointer[func()]
}

// Context returns the context of the session.
func (s *Session) Context() context.Context { return s.ctx }

// Writer returns a response writer whose connection, when it is taken over, belongs to the session.
func (s *Session) Writer(w http.ResponseWriter) http.ResponseWriter { return s.writer(w, nil) }

// writer returns a response writer whose connection, when it is taken over, belongs to the
// session. If bound is not nil, it wraps the reader of the connection.
func (s *Session) writer(w http.ResponseWriter, bound func(io.Reader) io.Reader) http.ResponseWriter {
	return &hijacker{w, s, bound}
}

// webSocket bounds the frames of a WebSocket.
func (s *Session) webSocket(r io.Reader) io.Reader { return webSocketFrames(r, s.large) }

// end closes the connection, after the client has received what was written.
func (s *Session) end() {
	if s.conn != nil {
		s.conn.end()
	}
	s.cancel()
	s.large.close()
}

// hijacker has no method Unwrap on purpose: libraries would take over the connection
// without it.
type hijacker struct {
	http.ResponseWriter
	s     *Session
	bound func(io.Reader) io.Reader
}

// WriteHeader leaves out informational responses (1xx but 101), which a runtime's server may send.
func (h *hijacker) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		h.ResponseWriter.WriteHeader(code)
	}
}

// Hijack implements [http.Hijacker]. It also works for writers of middleware that have the
// method Unwrap.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c := &clientConn{Conn: conn, s: h.s, buffered: buffered.Reader}
	c.frames = c.read
	if h.bound != nil {
		r := h.bound(readFunc(c.read))
		c.frames = func(b []byte) (int, error) {
			n, err := r.Read(b)
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				c.s.cancel() // it may be that of a bound
			}
			return n, err
		}
	}
	h.s.conn = c
	c.used()
	c.mu.Lock()
	c.timer = time.AfterFunc(c.nextCheck(), c.check)
	c.mu.Unlock()
	c.unhook = context.AfterFunc(h.s.ctx, c.abort)
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

// innermost returns the connection in a connection, such as that of TLS.
func innermost(conn net.Conn) net.Conn {
	for {
		outer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = outer.NetConn()
	}
}

// clientConn is the connection of a client after the request.
type clientConn struct {
	net.Conn
	s        *Session
	buffered *bufio.Reader // used by the one goroutine that reads
	frames   readFunc      // read, with a bound
	unhook   func() bool
	lastUse  atomic.Int64 // in nanoseconds since 1970
	reading  atomic.Bool
	pinging  atomic.Bool

	mu      sync.Mutex
	timer   *time.Timer
	closing bool // Close was called
	closed  bool
}

func (c *clientConn) used() { c.lastUse.Store(time.Now().UnixNano()) }

// readFunc is an [io.Reader].
type readFunc func(b []byte) (int, error)

// Read implements [io.Reader].
func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// Read implements [net.Conn].
func (c *clientConn) Read(b []byte) (int, error) { return c.frames(b) }

// read reads from the connection. Its end ends the session.
func (c *clientConn) read(b []byte) (n int, err error) {
	if c.buffered != nil && c.buffered.Buffered() > 0 {
		return c.buffered.Read(b)
	}
	c.buffered = nil
	c.reading.Store(true)
	n, err = c.Conn.Read(b)
	c.reading.Store(false)
	if n > 0 {
		c.used()
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.s.cancel()
	}
	return n, err
}

// Write implements [net.Conn]. A failure ends the session: the client is gone. It does not when the
// session is over, since libraries still answer pings then.
func (c *clientConn) Write(b []byte) (n int, err error) {
	n, err = c.Conn.Write(b)
	if n > 0 {
		c.used()
	}
	if err != nil && !c.s.over.Load() {
		c.s.cancel()
	}
	return n, err
}

// check ends the session if nothing was sent or received for the idle time, or if the client
// is gone. It looks for that only while nothing reads from the connection: a read notices it.
func (c *clientConn) check() {
	next := c.nextCheck()
	if next <= 0 || !c.reading.Load() && disconnected(c.Conn) {
		c.s.cancel()
		return
	}
	if ping := c.s.ping.Load(); ping != nil && !c.s.over.Load() && !c.reading.Load() &&
		c.pinging.CompareAndSwap(false, true) {
		go func() { // ends when the client receives it, or the connection is closed
			(*ping)()
			c.pinging.Store(false)
		}()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.timer.Reset(next)
	}
}

// nextCheck returns the time until the next check; it is not positive if the session has been
// idle for too long.
func (c *clientConn) nextCheck() time.Duration {
	if c.s.server.IdleTimeout < 0 {
		return c.s.server.CheckPeriod
	}
	return min(c.s.server.CheckPeriod, c.s.server.IdleTimeout-time.Since(time.Unix(0, c.lastUse.Load())))
}

// Close ends the direction to the client. The client, which then closes the connection, has
// a short time for that; its end is in end. It returns no error, see spdyConn.
func (c *clientConn) Close() error {
	c.mu.Lock()
	first := !c.closing && !c.closed
	c.closing = true
	c.mu.Unlock()
	if !first {
		return nil
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(c.s.server.Linger)) // also for a write that is under way
	left := c.s.server.Linger
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		left = 0
	} else if err := half.CloseWrite(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // TLS waits for room
		left = 0
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(left))
	return nil
}

// end closes the connection when the client has done so, or a short time after the client has
// received all.
func (c *clientConn) end() {
	c.s.over.Store(true)
	_ = c.Close()
	for began := time.Now(); ; {
		// Until the client closes the connection, or the deadline.
		if _, err := io.Copy(io.Discard, c.Conn); err == nil || !unreceived(c.Conn) ||
			time.Since(began) > receiveTimeout {
			break
		}
		_ = c.Conn.SetReadDeadline(time.Now().Add(c.s.server.Linger))
	}
	c.abort()
	c.unhook()
}

// abort closes the connection at once.
func (c *clientConn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.timer.Stop()
	_ = c.Conn.Close()
}
