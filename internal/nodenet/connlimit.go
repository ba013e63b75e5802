package nodenet

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// ConnLimit closes connections of a server that has more than Max: the oldest one that waits for a
// further request, and if there is none, the oldest one. Connections that a handler has taken over
// do not count, nor do those that are exempt.
type ConnLimit struct {
	Max int

	mu   sync.Mutex
	open map[net.Conn]counted
	last uint64 // the number of the connection that began to count last
}

// MaxConns returns the Max of a server that is to have up to most connections: an eighth of the files
// that the process may have open, if that is less. So three servers that are full leave the agent
// more than half of them, to start containers and to answer those that it knows.
func MaxConns(most int) int {
	if files := descriptors(); files > 0 && files/8 < uint64(most) {
		return max(1, int(files/8))
	}
	return most
}

// counted is a connection that counts.
type counted struct {
	state  http.ConnState
	number uint64 // in the order in which they began to count
}

// Conn is a connection of a server, with the limit of the server.
type Conn struct {
	net.Conn
	Limit *ConnLimit
}

// Exempt lets the connection no longer count.
func (c Conn) Exempt() { c.Limit.Exempt(c.Conn) }

// Count lets the connection, which is exempt and has a request, count again.
func (c Conn) Count() { c.Limit.Count(c.Conn) }

// connKey is the key of the connection in the context of its requests.
type connKey struct{}

// NewContext returns the context of the connection, for [http.Server].ConnContext.
func NewContext(ctx context.Context, c Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Known exempts the connection of a request until decided is called. A server calls Known when it knows
// the client of the request, and decided when it knows what the client may do: others cannot close
// the connection meanwhile. It does nothing for a context that is not from [NewContext].
func Known(ctx context.Context) (decided func()) {
	c, ok := ctx.Value(connKey{}).(Conn)
	if !ok {
		return func() {}
	}
	c.Exempt()
	return c.Count
}

// Exempt lets the connection no longer count.
func (l *ConnLimit) Exempt(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

// Count lets a connection that is exempt and has a request count again.
func (l *ConnLimit) Count(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(c, http.StateActive)
}

// Changed is for [http.Server].ConnState.
func (l *ConnLimit) Changed(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(l.open, c)
	case http.StateNew:
		for len(l.open) >= l.Max { // more than one if some count again
			v := l.victim()
			delete(l.open, v)
			_ = raw(v).Close()
		}
		l.add(c, state)
	default:
		if is, ok := l.open[c]; ok { // else it is exempt
			is.state = state
			l.open[c] = is
		}
	}
}

func (l *ConnLimit) add(c net.Conn, state http.ConnState) {
	if l.open == nil {
		l.open = map[net.Conn]counted{}
	}
	l.last++
	l.open[c] = counted{state, l.last}
}

// victim returns the connection to close. One that is new is no better than one with a request:
// else clients that send parts of requests would keep all others from beginning one.
func (l *ConnLimit) victim() (oldest net.Conn) {
	var least counted
	for c, is := range l.open {
		idle, leastIdle := is.state == http.StateIdle, least.state == http.StateIdle
		if oldest == nil || idle && !leastIdle || idle == leastIdle && is.number < least.number {
			oldest, least = c, is
		}
	}
	return oldest
}

// raw returns the connection below TLS: to close that of TLS sends a message, which a client that
// does not read delays by seconds.
func raw(c net.Conn) net.Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}
