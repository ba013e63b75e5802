package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/auth"
)

// many decides about all clients at once: first who they are, then what they may do.
type many struct {
	byName
	all                     int
	authenticate, authorize chan struct{} // closed when all wait for it

	mu               sync.Mutex
	arrived, decided int
}

func (m *many) Authenticate(req *http.Request) (*authenticationv1.UserInfo, error) {
	m.arrive(&m.arrived, m.authenticate)
	return m.byName.Authenticate(req)
}

func (m *many) Authorize(context.Context, *authenticationv1.UserInfo,
	*authorizationv1.ResourceAttributes) (bool, error) {
	m.arrive(&m.decided, m.authorize)
	return true, nil
}

func (m *many) arrive(count *int, all chan struct{}) {
	m.mu.Lock()
	if *count++; *count == m.all {
		close(all)
	}
	m.mu.Unlock()
	<-all
}

// 200 clients that connect at once, and are authenticated and authorized at once, are served.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &many{all: 200, authenticate: make(chan struct{}), authorize: make(chan struct{})}
		guard, err := auth.New(auth.Options{NodeName: "node", Authenticators: []auth.Authenticator{m}, Authorizer: m})
		require.NoError(t, err)
		l := newPipes("192.0.2.1")
		stop := serveTLS(t, l, guard.Protect(server.Trusted(http.NotFoundHandler())), server.TLSOptions{})
		alice := newCertificate(t, "alice")
		var clients []*tls.Conn
		for range m.all { // none has begun its handshake when the last one connects
			clients = append(clients, dialTLS(l, alice))
		}
		for _, c := range clients[1:] {
			ask(t, c, "/exec/a/b/c", "node")
		}
		synctest.Wait() // they wait to be authenticated
		ask(t, clients[0], "/exec/a/b/c", "node")
		synctest.Wait() // they wait to be authorized, but for one
		for _, c := range clients {
			assert.Equal(t, http.StatusNotFound, answer(t, c).StatusCode)
			_ = c.NetConn().Close()
		}
		stop()
	})
}

// Connections whose clients are known stay open while it is decided what they may do, however many
// strangers come. Those that are refused count again.
func TestKnownClientsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decide := make(chan struct{})
		guard, err := auth.New(auth.Options{NodeName: "node", Authenticators: []auth.Authenticator{byName{}},
			Authorizer: slow{decide}})
		require.NoError(t, err)
		l := newPipes("192.0.2.1")
		stop := serveTLS(t, l, guard.Protect(server.Trusted(http.NotFoundHandler())), server.TLSOptions{})
		strangers := func(n int) (out []net.Conn) {
			for range n {
				out = append(out, l.dial())
			}
			synctest.Wait()
			return out
		}
		conns := map[string][]net.Conn{}
		for _, user := range []string{"alice", "mallory"} {
			cert := newCertificate(t, user)
			for range 300 {
				c := dialTLS(l, cert)
				ask(t, c, "/exec/a/b/c", "node")
				conns[user] = append(conns[user], c)
			}
		}
		synctest.Wait()
		first := strangers(600)
		close(decide)
		for _, c := range conns["alice"] {
			assert.Equal(t, http.StatusNotFound, answer(t, c).StatusCode)
		}
		for _, c := range conns["mallory"] {
			assert.Equal(t, http.StatusForbidden, answer(t, c).StatusCode)
		}
		synctest.Wait()
		second := strangers(600)
		open := map[string]int{}
		for user, all := range conns {
			for _, c := range all {
				_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
				if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
					open[user]++
				}
				_ = c.(*tls.Conn).NetConn().Close()
			}
		}
		assert.Equal(t, map[string]int{"alice": 300}, open)
		for _, c := range append(first, second...) {
			_ = c.Close()
		}
		stop()
	})
}

// slow allows everything to alice, later.
type slow struct{ decide chan struct{} }

func (s slow) Authorize(_ context.Context, user *authenticationv1.UserInfo,
	_ *authorizationv1.ResourceAttributes) (bool, error) {
	<-s.decide
	return user.Username == "alice", nil
}
