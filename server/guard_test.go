package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/auth"
)

// pipes is a listener in memory, so that its connections have virtual time.
type pipes struct {
	addr   net.Addr
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
	// open is the number of connections that the server has not closed.
	open atomic.Int64
}

func newPipes(ip string) *pipes {
	return &pipes{addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 10255}, accept: make(chan net.Conn),
		closed: make(chan struct{})}
}

func (p *pipes) Addr() net.Addr { return p.addr }
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial() net.Conn {
	c, s := net.Pipe()
	p.open.Add(1)
	p.accept <- &at{Conn: s, pipes: p}
	return c
}

// at is the server's end of a connection to an address.
type at struct {
	net.Conn
	pipes *pipes
	once  sync.Once
}

func (c *at) LocalAddr() net.Addr { return c.pipes.addr }

func (c *at) Close() error {
	c.once.Do(func() { c.pipes.open.Add(-1) })
	return c.Conn.Close()
}

// closesConns fails the test if the server has a connection open when it has ended.
func closesConns(t testing.TB, l net.Listener) {
	if p, ok := l.(*pipes); ok {
		t.Cleanup(func() {
			synctest.Wait() // until those that are being closed are
			assert.Zero(t, p.open.Load(), "connections are left open")
		})
	}
}

// ask sends a request and does not read the answer.
func ask(t *testing.T, c net.Conn, path, host string) {
	t.Helper()
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host)
	require.NoError(t, err)
}

func answer(t *testing.T, c net.Conn) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	return resp
}

// "OPTIONS *", which a server of net/http answers by itself, needs what every request needs.
func TestOptionsOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard, err := auth.New(auth.Options{NodeName: "n1", Authorizer: auth.AlwaysAllow{}})
		require.NoError(t, err)
		l := newPipes("192.0.2.1")
		stop := serve(t, l, guard.Protect(server.Kubelet(agent{}, server.Options{})))
		for _, target := range []string{"*", "/", "/pods"} {
			c := l.dial()
			_, err = fmt.Fprintf(c, "OPTIONS %s HTTP/1.1\r\nHost: example.com\r\n\r\n", target)
			require.NoError(t, err)
			assert.Equal(t, http.StatusUnauthorized, answer(t, c).StatusCode, target)
			_ = c.Close()
		}
		stop()
	})
}

// manyPods is an agent that counts how often its pods are listed.
type manyPods struct {
	agent
	lists atomic.Int64
}

func newManyPods() *manyPods {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web",
		Annotations: map[string]string{"a": strings.Repeat("x", 1<<16)}}}
	return &manyPods{agent: agent{pods: []*v1.Pod{pod}}}
}

func (m *manyPods) Pods() []*v1.Pod {
	m.lists.Add(1)
	return m.agent.Pods()
}

func serve(t *testing.T, l net.Listener, h http.Handler) (stop func()) {
	t.Helper()
	closesConns(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, h) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// Clients that do not read must not hold the memory of lists for ever, nor one for each.
func TestSlowReadersOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a := newPipes("127.0.0.1"), newManyPods()
		stop := serve(t, l, server.Handler(a, server.Options{}))
		var slow []net.Conn
		for range 80 {
			c := l.dial()
			ask(t, c, "/pods", "localhost")
			synctest.Wait()
			slow = append(slow, c)
		}
		assert.LessOrEqual(t, a.lists.Load(), int64(4), "they share what was encoded")
		fast := l.dial()
		ask(t, fast, "/pods", "localhost")
		resp := answer(t, fast)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Contains(t, string(body), `"web"`, "others are served meanwhile")
		require.NoError(t, fast.Close())

		time.Sleep(31 * time.Second) // virtual
		synctest.Wait()
		for _, c := range slow {
			_, err := io.ReadAll(c)
			require.NoError(t, err, "the server has closed it")
		}
		before := a.lists.Load()
		again := l.dial()
		ask(t, again, "/pods", "localhost")
		_, _ = io.Copy(io.Discard, answer(t, again).Body)
		assert.Equal(t, before+1, a.lists.Load(), "nothing is kept")
		require.NoError(t, again.Close())
		stop()
	})
}

func TestLimitOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes("192.0.2.1")
		hold := make(chan struct{})
		stop := serve(t, l, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/hold" {
				<-hold
			}
		}))
		closed := func(c net.Conn) bool {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			defer func() { _ = c.SetReadDeadline(time.Time{}) }()
			_, err := c.Read(make([]byte, 1))
			return err == io.EOF
		}
		var idle []net.Conn
		most := nodenet.MaxConns(500) // fewer where the process may have few files
		for range most {
			idle = append(idle, l.dial())
			synctest.Wait()
		}
		var busy []net.Conn
		for range most { // each takes the place of one that waits
			c := l.dial()
			synctest.Wait()
			ask(t, c, "/hold", "example.com")
			synctest.Wait()
			busy = append(busy, c)
		}
		for _, c := range idle {
			assert.True(t, closed(c))
		}
		extra := l.dial()
		synctest.Wait()
		assert.False(t, closed(extra), "all are busy, and the oldest gives way")
		assert.True(t, closed(busy[0]))
		assert.False(t, closed(busy[1]))
		_ = extra.Close()
		close(hold)
		for _, c := range busy[1:] {
			assert.Equal(t, http.StatusOK, answer(t, c).StatusCode)
			_ = c.Close()
		}
		stop()
	})
}

// A web page whose name resolves to 127.0.0.1 sends its name as Host.
func TestDNSRebinding(t *testing.T) {
	for ip, hosts := range map[string]map[string]int{
		"127.0.0.1": {
			"localhost": 200, "LOCALHOST:10255": 200, "127.0.0.1:10255": 200, "[::1]:10255": 200, "[::1]": 200,
			"evil.example:10255": 403, "evil.example": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403,
		},
		"::1":       {"localhost": 200, "evil.example": 403},
		"192.0.2.1": {"node.example:10255": 200},
	} {
		for host, want := range hosts {
			t.Run(ip+" as "+host, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newPipes(ip)
					stop := serve(t, l, server.Handler(agent{}, server.Options{}))
					c := l.dial()
					ask(t, c, "/pods", host)
					resp := answer(t, c)
					_, err := io.Copy(io.Discard, resp.Body)
					require.NoError(t, err)
					assert.Equal(t, want, resp.StatusCode)
					require.NoError(t, c.Close())
					stop()
				})
			})
		}
	}
}

func TestPodsAtTheSameTime(t *testing.T) {
	a := newManyPods()
	h := server.Handler(a, server.Options{})
	var clients sync.WaitGroup
	for range 50 {
		clients.Go(func() {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/pods", nil))
			assert.Contains(t, rec.Body.String(), "web")
		})
	}
	clients.Wait()
}

// Clients send as many headers as a server reads, and wait before the last one.
func TestLimitOfHeaders(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	stop := serve(t, l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer stop()
	for headers, want := range map[int]int{100: http.StatusOK, 4000: http.StatusRequestHeaderFieldsTooLarge} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String(), nil)
		require.NoError(t, err)
		for i := range headers {
			req.Header[fmt.Sprintf("%x", i)] = []string{""}
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		require.NoError(t, err)
		assert.Equal(t, want, resp.StatusCode, headers)
		require.NoError(t, resp.Body.Close())
	}
}

// The body of a request that never comes must not keep a connection, also if no handler reads it.
func TestBodiesThatDoNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes("192.0.2.1")
		stop := serve(t, l,
			http.HandlerFunc(func(w http.ResponseWriter,
				_ *http.Request) {
				http.Error(w, "Unauthorized", http.StatusUnauthorized)
			}))
		begin := time.Now()
		var conns []net.Conn
		for range 100 {
			c := l.dial()
			_, err := fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: node\r\nContent-Length: 10\r\n\r\n")
			require.NoError(t, err)
			conns = append(conns, c)
		}
		for _, c := range conns {
			_, err := io.ReadAll(c)
			require.NoError(t, err, "the server has closed it")
		}
		assert.Equal(t, 10*time.Second, time.Since(begin))
		stop()
	})
}

// A port on all addresses is reached by the loopback address, too.
func TestDNSRebindingOfAllAddresses(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	require.NoError(t, err)
	defer serve(t, l, server.Handler(agent{}, server.Options{}))()
	port := l.Addr().(*net.TCPAddr).Port
	for host, want := range map[string]int{"localhost": http.StatusOK, "evil.example": http.StatusForbidden} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			fmt.Sprintf("http://127.0.0.1:%d/pods", port), nil)
		require.NoError(t, err)
		req.Host = host
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		require.NoError(t, err)
		assert.Equal(t, want, resp.StatusCode, host)
		require.NoError(t, resp.Body.Close())
	}
}

// Serve waits for handlers that have taken over their connections, but not for ever.
func TestStopWithSessions(t *testing.T) {
	for last, want := range map[time.Duration]time.Duration{500 * time.Millisecond: 500 * time.Millisecond,
		time.Hour: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := newPipes("192.0.2.1")
			taken := make(chan struct{})
			stop := serve(t, l, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				assert.NoError(t, err)
				defer conn.Close()
				close(taken)
				<-req.Context().Done()
				time.Sleep(last)
			}))
			c := l.dial()
			ask(t, c, "/", "node")
			<-taken
			begin := time.Now()
			stop()
			assert.Equal(t, want, time.Since(begin))
			_ = c.Close()
			time.Sleep(last) // until the handler ends
		})
	}
}
