// Package connlimit bounds the number of connections of an HTTP server.
package connlimit

import (
	"net"
	"net/http"
	"sync"
)

// Limit closes connections of a server that has more than Max: one that waits for a request,
// and if all are busy the new one. Connections that a handler has taken over do not count, nor
// do those that are exempt.
type Limit struct {
	Max int

	mu     sync.Mutex
	open   map[net.Conn]http.ConnState
	exempt map[net.Conn]bool
}

// Exempt lets the connection no longer count. The server has it open.
func (l *Limit) Exempt(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[c]; !ok {
		return // closed, or exempt before
	}
	delete(l.open, c)
	if l.exempt == nil {
		l.exempt = map[net.Conn]bool{}
	}
	l.exempt[c] = true
}

// Changed is for [http.Server].ConnState.
func (l *Limit) Changed(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(l.open, c)
		delete(l.exempt, c)
		return
	case http.StateNew:
		if len(l.open) >= l.Max {
			_ = raw(l.victim(c)).Close()
		}
	}
	if l.exempt[c] {
		return
	}
	if l.open == nil {
		l.open = map[net.Conn]http.ConnState{}
	}
	l.open[c] = state
}

func (l *Limit) victim(fresh net.Conn) net.Conn {
	for c, state := range l.open {
		if state != http.StateActive {
			delete(l.open, c)
			return c
		}
	}
	return fresh
}

// raw returns the connection below TLS: to close that of TLS sends a message, which a client that
// does not read delays by seconds.
func raw(c net.Conn) net.Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}
