package harness

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// Gateway passes connections on into a network namespace, for clients whose connections a test
// cannot make itself. It listens on the loopback of the test.
type Gateway struct {
	// Addr is where it listens.
	Addr string

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// NewGateway starts a gateway to what dial connects with. It ends with the test.
func NewGateway(t testing.TB, dial func(context.Context) (net.Conn, error)) *Gateway {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{Addr: l.Addr().String(), conns: map[net.Conn]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { g.pass(ctx, client, dial) })
		}
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		g.mu.Lock()
		g.closed = true
		g.mu.Unlock()
		g.Cut()
		running.Wait()
	})
	return g
}

// Cut resets all connections, those of the clients and those to the server, as if the clients had
// crashed.
func (g *Gateway) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		reset(c)
	}
}

func (g *Gateway) pass(ctx context.Context, client net.Conn, dial func(context.Context) (net.Conn, error)) {
	defer client.Close()
	server, err := dial(ctx)
	if err != nil {
		return
	}
	defer server.Close()
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return
	}
	g.conns[client], g.conns[server] = true, true
	g.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { passOn(server, client) })
	both.Go(func() { passOn(client, server) })
	both.Wait()
	g.mu.Lock()
	delete(g.conns, client)
	delete(g.conns, server)
	g.mu.Unlock()
}

// passOn copies in one direction. The end passes on, too.
func passOn(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		reset(to)
		reset(from)
		return
	}
	_ = to.(*net.TCPConn).CloseWrite()
}

func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}
