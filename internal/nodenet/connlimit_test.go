package nodenet_test

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
)

// conn is a connection that only notes whether it was closed.
type conn struct {
	net.Conn
	closed bool
}

func (c *conn) Close() error {
	c.closed = true
	return nil
}

// server has the connections of a server, which reports their states to a limit of 3.
type server struct {
	limit nodenet.ConnLimit
	conns []*conn
}

// newServer returns a server with connections in these states, the oldest first.
func newServer(states ...http.ConnState) *server {
	s := &server{limit: nodenet.ConnLimit{Max: 3}}
	for _, state := range states {
		c := s.open()
		if state != http.StateNew {
			s.limit.Changed(c, state)
		}
	}
	return s
}

func (s *server) open() *conn {
	c := &conn{}
	s.conns = append(s.conns, c)
	s.limit.Changed(c, http.StateNew)
	return c
}

// closed returns the indexes of the connections that were closed.
func (s *server) closed() (indexes []int) {
	for i, c := range s.conns {
		if c.closed {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

func TestClosedConnections(t *testing.T) {
	const fresh, active, idle = http.StateNew, http.StateActive, http.StateIdle
	for name, tc := range map[string]struct {
		states []http.ConnState
		want   []int
	}{
		"below the limit":              {[]http.ConnState{active, active}, nil},
		"the oldest of the busy ones":  {[]http.ConnState{active, active, active}, []int{0}},
		"an idle one before a busy":    {[]http.ConnState{active, idle, active}, []int{1}},
		"the oldest of the idle ones":  {[]http.ConnState{active, idle, idle}, []int{1}},
		"a new one is as good as busy": {[]http.ConnState{active, fresh, fresh}, []int{0}},
	} {
		s := newServer(tc.states...)
		assert.False(t, s.open().closed, name)
		assert.Equal(t, tc.want, s.closed(), name)
	}
}

func TestConnectionsThatDoNotCount(t *testing.T) {
	for name, end := range map[string]func(s *server){
		"closed":   func(s *server) { s.limit.Changed(s.conns[0], http.StateClosed) },
		"hijacked": func(s *server) { s.limit.Changed(s.conns[0], http.StateHijacked) },
		"exempt":   func(s *server) { s.limit.Exempt(s.conns[0]) },
		"exempt, with a further request": func(s *server) {
			s.limit.Exempt(s.conns[0])
			s.limit.Changed(s.conns[0], http.StateIdle)
			s.limit.Changed(s.conns[0], http.StateActive)
		},
	} {
		s := newServer(http.StateActive, http.StateActive, http.StateActive)
		end(s)
		s.open()
		assert.Empty(t, s.closed(), name)
		s.open()
		assert.Equal(t, []int{1}, s.closed(), name)
	}
}

// A connection that counts again is the newest.
func TestCountAgain(t *testing.T) {
	s := newServer(http.StateActive, http.StateActive)
	s.limit.Exempt(s.conns[0])
	s.open()
	s.limit.Count(s.conns[0])
	s.open()
	assert.Equal(t, []int{1}, s.closed())
	s.open()
	assert.Equal(t, []int{1, 2}, s.closed())
}

// tlsConn is a connection with another one below it.
type tlsConn struct {
	conn
	raw *conn
}

func (c *tlsConn) NetConn() net.Conn { return c.raw }

// The connection below TLS is closed, without a message to a client that may not read it.
func TestClosesBelowTLS(t *testing.T) {
	limit := nodenet.ConnLimit{Max: 1}
	c := &tlsConn{raw: &conn{}}
	limit.Changed(c, http.StateNew)
	limit.Changed(&conn{}, http.StateNew)
	assert.True(t, c.raw.closed)
	assert.False(t, c.closed)
}
