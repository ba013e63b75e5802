package nodenet

import (
	"net"
	"sync"
	"sync/atomic"
)

// Stuck returns a connection whose peer stops reading when it has written that many bytes
// of its answer: from then on every write waits until the connection is closed.
func Stuck(conn net.Conn, after int64) net.Conn {
	return &stuck{Conn: conn, after: after, closed: make(chan struct{})}
}

type stuck struct {
	net.Conn
	after    int64
	received atomic.Int64
	closed   chan struct{}
	once     sync.Once
}

func (c *stuck) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

func (c *stuck) Write(p []byte) (int, error) {
	if c.received.Load() > c.after {
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *stuck) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
