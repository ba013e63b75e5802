package harness

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// proxyAddr is where a [Proxy] listens in the network namespace of its control plane.
const proxyAddr = "127.0.0.1:6444"

// Proxy stands between one node and the API server, and makes faults.
type Proxy struct {
	// Kubeconfig leads the node to the proxy.
	Kubeconfig string

	mu       sync.Mutex
	answer   func(*http.Request) *metav1.Status
	requests int
	faults   int
	conns    map[*proxyConn]bool
	hang     bool // new connections are dead
	frames   [][]byte
	watches  map[*podWatch]bool
}

// NewProxy starts a proxy for the node, which ends with the test.
func (p *ControlPlane) NewProxy(t testing.TB, node string) *Proxy {
	t.Helper()
	p.NodeKubeconfig(t, node)
	kubeconfig, err := p.ca.kubeconfig(node, "https://"+proxyAddr, "")
	if err != nil {
		t.Fatal(err)
	}
	// The agent's certificate ends here, so the proxy has the same one.
	upstream, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		CertFile: p.path(node + ".crt"), KeyFile: p.path(node + ".key"), CAFile: p.path("ca.crt"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(p.path("kube-apiserver.crt"), p.path("kube-apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := p.net.Listen(proxyAddr)
	if err != nil {
		t.Fatal(err)
	}
	x := &Proxy{Kubeconfig: kubeconfig, conns: map[*proxyConn]bool{}, watches: map[*podWatch]bool{}}
	transport := &http.Transport{DialContext: p.net.DialContext, TLSClientConfig: upstream, ForceAttemptHTTP2: true,
		DisableCompression: true}
	silent := log.New(io.Discard, "", 0)
	reverse := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: apiServerAddr}) },
		Transport:     transport,
		FlushInterval: -1, ErrorLog: silent, ModifyResponse: x.record,
	}
	server := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { x.serve(w, r, reverse) }),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ErrorLog: silent,
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.ServeTLS(proxyListener{listener, x}, "", "")
	}()
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
		<-served
	})
	return x
}

func (x *Proxy) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	x.mu.Lock()
	x.requests++
	answer := x.answer
	x.mu.Unlock()
	if answer != nil {
		if status := answer(r); status != nil {
			x.mu.Lock()
			x.faults++
			x.mu.Unlock()
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			status.Status = metav1.StatusFailure
			w.Header().Set("Content-Type", "application/json")
			if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
			}
			w.WriteHeader(int(status.Code))
			json.NewEncoder(w).Encode(status)
			return
		}
	}
	next.ServeHTTP(w, r)
}

// Answer has the function called for each request: the proxy answers with the status that it returns,
// or passes the request on if that is nil. A nil function ends this.
func (x *Proxy) Answer(f func(*http.Request) *metav1.Status) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answer = f
}

// Requests returns the number of requests until now.
func (x *Proxy) Requests() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.requests
}

// Faults returns the number of faults that the node has met until now: requests that were answered, connections
// that went half open, and events of watches that were repeated.
func (x *Proxy) Faults() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.faults
}

// Disconnect closes all connections.
func (x *Proxy) Disconnect() {
	x.mu.Lock()
	conns := x.conns
	x.conns = map[*proxyConn]bool{}
	x.mu.Unlock()
	for c := range conns {
		c.Close()
	}
}

// HalfOpen makes all connections half open: what is sent on them is lost, and nothing comes
// back. New connections work.
func (x *Proxy) HalfOpen() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for c := range x.conns {
		c.die()
		x.faults++
	}
}

// Hang has the proxy accept connections and never answer, or ends that. The connections from
// that time are closed then.
func (x *Proxy) Hang(hang bool) {
	x.HalfOpen()
	x.mu.Lock()
	x.hang = hang
	x.mu.Unlock()
	if !hang {
		x.Disconnect()
	}
}

// Replay repeats in each open watch of pods what all watches of pods have delivered until now, and returns the
// number of events.
func (x *Proxy) Replay() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	for w := range x.watches {
		for _, frame := range x.frames {
			w.write(frame)
		}
	}
	replayed := len(x.frames) * len(x.watches)
	x.faults += replayed
	return replayed
}

// record notes what a watch of pods delivers.
func (x *Proxy) record(resp *http.Response) error {
	r := resp.Request
	if resp.StatusCode != http.StatusOK || r.URL.Query().Get("watch") == "" ||
		!strings.HasSuffix(r.URL.Path, "/api/v1/pods") {
		return nil
	}
	next := nextLine
	if strings.Contains(resp.Header.Get("Content-Type"), "protobuf") {
		next = nextMessage
	}
	from := resp.Body
	w := &podWatch{from: from, wake: make(chan struct{}, 1)}
	resp.Body = w
	x.mu.Lock()
	x.watches[w] = true
	x.mu.Unlock()
	go func() {
		in := bufio.NewReader(from)
		for {
			frame, err := next(in)
			x.mu.Lock()
			if err != nil {
				delete(x.watches, w)
				x.mu.Unlock()
				w.end(err)
				return
			}
			x.frames = append(x.frames, slices.Clone(frame))
			x.mu.Unlock()
			w.write(frame)
		}
	}()
	return nil
}

// nextLine reads an event in JSON.
func nextLine(in *bufio.Reader) ([]byte, error) { return in.ReadBytes('\n') }

// nextMessage reads an event in protobuf: its length in 4 bytes stands before it.
func nextMessage(in *bufio.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(head))
	copy(frame, head)
	_, err := io.ReadFull(in, frame[4:])
	return frame, err
}

// podWatch is the body of the response to a watch.
type podWatch struct {
	from io.ReadCloser
	wake chan struct{} // one buffered: there is something to read

	mu   sync.Mutex
	data bytes.Buffer
	err  error
}

func (w *podWatch) write(frame []byte) {
	w.mu.Lock()
	w.data.Write(frame)
	w.mu.Unlock()
	w.poke()
}

func (w *podWatch) end(err error) {
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	w.poke()
}

func (w *podWatch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Read implements io.Reader.
func (w *podWatch) Read(p []byte) (int, error) {
	for {
		w.mu.Lock()
		if w.data.Len() > 0 {
			defer w.mu.Unlock()
			return w.data.Read(p)
		}
		err := w.err
		w.mu.Unlock()
		if err != nil {
			return 0, err
		}
		<-w.wake
	}
}

// Close implements io.Closer.
func (w *podWatch) Close() error { return w.from.Close() }

// proxyListener gives the proxy its connections.
type proxyListener struct {
	net.Listener
	x *Proxy
}

func (l proxyListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &proxyConn{Conn: conn, x: l.x, dead: make(chan struct{}), closed: make(chan struct{})}
	l.x.mu.Lock()
	defer l.x.mu.Unlock()
	l.x.conns[c] = true
	if l.x.hang {
		c.die()
	}
	return c, nil
}

// proxyConn is a connection that may become half open.
type proxyConn struct {
	net.Conn
	x *Proxy

	kill, close  sync.Once
	dead, closed chan struct{}
}

func (c *proxyConn) die() { c.kill.Do(func() { close(c.dead) }) }

func (c *proxyConn) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

func (c *proxyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.isDead() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *proxyConn) Write(p []byte) (int, error) {
	if c.isDead() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *proxyConn) Close() error {
	c.x.mu.Lock()
	delete(c.x.conns, c)
	c.x.mu.Unlock()
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
