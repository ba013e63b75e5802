package streams_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server/streams"
)

var spdyV4 = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"},
	"X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}

var webSocketV5 = http.Header{
	"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"},
	"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"MDEyMzQ1Njc4OWFiY2RlZg=="}, "Origin": {"http://localhost"},
}

var tunnel = http.Header{
	"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"SPDY/3.1+portforward.k8s.io"},
	"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"MDEyMzQ1Njc4OWFiY2RlZg=="}, "Origin": {"http://localhost"},
}

// fixed is a runtime with one URL for all streams. block is called first, if it is not nil.
type fixed struct {
	url   string
	block func(ctx context.Context) error
}

func (f fixed) answer(ctx context.Context) (*url.URL, error) {
	if f.block != nil {
		if err := f.block(ctx); err != nil {
			return nil, err
		}
	}
	return url.Parse(f.url)
}

func (f fixed) ExecURL(ctx context.Context, _ runtime.ContainerID, _ []string,
	_ runtime.StreamOptions) (*url.URL, error) {
	return f.answer(ctx)
}

func (f fixed) AttachURL(ctx context.Context, _ runtime.ContainerID, _ runtime.StreamOptions) (*url.URL, error) {
	return f.answer(ctx)
}

func (f fixed) PortForwardURL(ctx context.Context, _ string, _ []int32) (*url.URL, error) {
	return f.answer(ctx)
}

type request struct {
	target string
	header http.Header
}

// requests are those of all protocols.
var requests = map[string]request{
	"exec by SPDY":           {"/exec/default/web/main?output=1&command=hang", spdyV4},
	"exec by WebSocket":      {"/exec/default/web/main?output=1&command=hang", webSocketV5},
	"forward by SPDY":        {"/portForward/default/web", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"portforward.k8s.io"}}},
	"forward by WebSocket":   {"/portForward/default/web", tunnel},
	"attach by SPDY":         {"/attach/default/web/main?output=1", spdyV4},
	"attach by WebSocket v5": {"/attach/default/web/main?output=1", webSocketV5},
}

// A server of streams that accepts a connection and never answers is given up, and also at
// once when the client disconnects.
func TestSilentRuntime(t *testing.T) {
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	rt := fixed{url: "http://" + silent.Addr().String() + "/secret"}
	for name, r := range requests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true, streams.Options{})
			w.serve(t, rt, streams.Options{SetupTimeout: 50 * time.Millisecond})
			conn, _, resp := w.raw(t, http.MethodPost, r.target, r.header)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, http.StatusInternalServerError, resp.StatusCode)
			assert.Contains(t, string(text), "error dialing backend: ")
			assert.NotContains(t, string(text), "secret")
			require.NoError(t, conn.Close())

			w.serve(t, rt, streams.Options{SetupTimeout: time.Hour})
			conn = w.request(t, r.target, r.header)
			until(t, "the session has begun", func() bool { return w.h.Sessions() == 1 })
			require.NoError(t, conn.Close())
			until(t, "the session ends", func() bool { return w.h.Sessions() == 0 })
		})
	}
}

// request sends a request on a connection of its own.
func (w *world) request(t *testing.T, target string, header http.Header) net.Conn {
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.http.URL, "http://"))
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.http.URL+target, nil)
	require.NoError(t, err)
	req.Header = header
	require.NoError(t, req.Write(conn))
	return conn
}

// A runtime whose call never returns costs nothing when the client has disconnected.
func TestRuntimeCallHangs(t *testing.T) {
	for name, r := range requests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true, streams.Options{})
			called := make(chan struct{})
			w.serve(t, fixed{block: func(ctx context.Context) error {
				close(called)
				<-ctx.Done()
				return ctx.Err()
			}}, streams.Options{})
			conn := w.request(t, r.target, r.header)
			<-called
			require.NoError(t, conn.Close())
			until(t, "the session ends", func() bool { return w.h.Sessions() == 0 })

			// A client that waits gets an error.
			w.serve(t, fixed{block: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}}, streams.Options{SetupTimeout: 50 * time.Millisecond})
			conn, _, resp := w.raw(t, http.MethodPost, r.target, r.header)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, http.StatusInternalServerError, resp.StatusCode)
			assert.Contains(t, string(text), "the container runtime has not answered within 50ms: ")
			require.NoError(t, conn.Close())
		})
	}
}

// What the server of streams answers instead of a session reaches the client.
func TestRuntimeRefuses(t *testing.T) {
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	for name, r := range requests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true, streams.Options{})
			w.serve(t, fixed{url: refusing.URL}, streams.Options{})
			conn, _, resp := w.raw(t, http.MethodPost, r.target, r.header)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, http.StatusNotFound, resp.StatusCode)
			assert.Contains(t, string(text), "404 page not found")
			require.NoError(t, conn.Close())
		})
	}
}

// A runtime that ends in a session ends the session. A client of version 5 receives an error.
func TestRuntimeRestarts(t *testing.T) {
	for _, websocket := range []bool{true, false} {
		w := newWorld(t, false, streams.Options{})
		rt := serveElsewhere(t, w.m)
		w.serve(t, locator{rt}, streams.Options{})
		got := &firstWrite{first: func() { rt.kill() }}
		u := w.url(t, "/exec/default/web/main", url.Values{"command": {"hang"}, "output": {"1"}})
		err := executor(t, websocket, u).StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: got})
		if websocket {
			// The server of the runtime may still send why the command ends before its connection is closed.
			require.Error(t, err)
			assert.Regexp(t, "the connection to the container runtime has ended|error executing command in "+
				"container: context canceled", err.Error())
		}
		until(t, "the session ends", func() bool { return w.h.Sessions() == 0 })
	}
}

// A client that disconnects ends its command, in whatever direction the data goes.
func TestClientGone(t *testing.T) {
	everyWay(t, func(t *testing.T, local, websocket bool) {
		for name, cmd := range map[string][]string{
			"nothing is sent":          {"hang"},
			"the runtime sends":        {"pour", "1000000000000"},
			"the client sends":         {"count"},
			"both directions are full": {"cat"},
		} {
			if !local && cmd[0] == "hang" {
				continue // the server of the runtime does not end a command that neither reads nor writes
			}
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, local, streams.Options{})
				query := url.Values{"command": cmd, "output": {"1"}, "input": {"1"}, "error": {"1"}}
				sender, leave := w.stuckClient(t, websocket, "/exec/default/web/main", query)
				until(t, "the command runs", func() bool { return w.m.running.Load() == 1 })
				if local && cmd[0] != "pour" && cmd[0] != "count" {
					sender.awaitStuck(t)
				}
				leave()
				until(t, "the command has ended", func() bool { return w.m.running.Load() == 0 })
				until(t, "the session has ended", func() bool { return w.h.Sessions() == 0 })
			})
		}
	})
}

// sender sends without end.
type sender struct {
	sent  atomic.Int64
	ended chan struct{} // closed when nothing can be sent any more
}

func newSender(to io.Writer, data []byte) *sender {
	s := &sender{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for {
			n, err := to.Write(data)
			if s.sent.Add(int64(n)); err != nil {
				return
			}
		}
	}()
	return s
}

// awaitStuck waits until nothing more is sent, as far as can be seen.
func (s *sender) awaitStuck(t *testing.T) {
	t.Helper()
	last, same := int64(-1), 0
	until(t, "nothing more is sent", func() bool { // it is called each 5 ms
		if now := s.sent.Load(); now != last {
			last, same = now, 0
		}
		same++
		return same == 10
	})
}

// stuckClient is a client that sends without end and does not receive, until leave.
func (w *world) stuckClient(t *testing.T, websocket bool, path string, query url.Values) (s *sender, leave func()) {
	if websocket {
		conn, _, resp := w.raw(t, http.MethodGet, path+"?"+query.Encode(), webSocketV5)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		// on channel 0
		s = newSender(conn, append([]byte{0x82, 0x80 | 126, 0x10, 0, 0, 0, 0, 0}, make([]byte, 0x1000)...))
		return s, func() { _ = conn.Close(); <-s.ended }
	}
	conn, client := w.spdy(t, path+"?"+query.Encode(), spdyV4)
	opened := map[string]httpstream.Stream{}
	for _, kind := range []string{"error", "stdin", "stdout", "stderr"} {
		stream, err := client.CreateStream(http.Header{"Streamtype": {kind}})
		require.NoError(t, err)
		opened[kind] = stream
	}
	s = newSender(opened["stdin"], make([]byte, 0x1000))
	return s, func() { _ = conn.Close(); <-s.ended; _ = client.Close() }
}

// spdy opens a connection of SPDY. Closed, it ends without a word, as that of a client that is killed.
func (w *world) spdy(t *testing.T, target string, header http.Header) (net.Conn, httpstream.Connection) {
	t.Helper()
	conn, _, resp := w.raw(t, http.MethodPost, target, header)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	client, err := spdy.NewClientConnection(calm{conn.(*net.TCPConn)})
	require.NoError(t, err)
	return conn, client
}

// A client that disconnects ends the connections that are forwarded for it.
func TestForwardClientGone(t *testing.T) {
	everyWay(t, func(t *testing.T, local, websocket bool) {
		w := newWorld(t, local, streams.Options{})
		l := w.link(t, websocket)
		for _, port := range []int{7, 7} {
			_, _, err := l.open(port)
			require.NoError(t, err)
		}
		until(t, "the connections are open", func() bool { return w.m.running.Load() == 2 })
		require.NoError(t, l.conn.Close())
		until(t, "the connections have ended", func() bool { return w.m.running.Load() == 0 })
		until(t, "the session has ended", func() bool { return w.h.Sessions() == 0 })
	})
}

// The same is so if the client has sent more than the other end reads.
func TestForwardStuckClientGone(t *testing.T) {
	w := newWorld(t, true, streams.Options{})
	conn, client := w.spdy(t, requests["forward by SPDY"].target, requests["forward by SPDY"].header)
	data, _, err := (&link{t: t, conn: client}).open(13)
	require.NoError(t, err)
	until(t, "the connection is open", func() bool { return w.m.running.Load() == 1 })
	s := newSender(data, make([]byte, 0x1000))
	s.awaitStuck(t)
	require.NoError(t, conn.Close())
	<-s.ended
	_ = client.Close()
	until(t, "the connection has ended", func() bool { return w.m.running.Load() == 0 })
	until(t, "the session has ended", func() bool { return w.h.Sessions() == 0 })
}

// A session in which nothing is sent ends.
func TestIdle(t *testing.T) {
	for where, local := range map[string]bool{"local": true, "remote": false} {
		t.Run(where, func(t *testing.T) {
			w := newWorld(t, local, streams.Options{IdleTimeout: 250 * time.Millisecond})
			opened := map[string]io.Reader{}
			for name, r := range requests {
				if !local && (strings.HasPrefix(name, "exec by SPDY") || strings.HasPrefix(name, "attach by SPDY")) {
					continue // the client does not open its streams, for which the runtime waits
				}
				conn, in, resp := w.raw(t, http.MethodGet, r.target, r.header)
				require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode, name)
				require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
				opened[name] = in
			}
			for name, in := range opened {
				_, err := io.Copy(io.Discard, in) // the end of the connection
				assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, name)
			}
			until(t, "the sessions have ended", func() bool { return w.h.Sessions() == 0 })
		})
	}
}

// A client that does not open its streams is disconnected.
func TestNoClientStreams(t *testing.T) {
	w := newWorld(t, true, streams.Options{SetupTimeout: 50 * time.Millisecond})
	conn, in, resp := w.raw(t, http.MethodPost, "/exec/default/web/main?output=1&command=hang", spdyV4)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	_, _ = io.Copy(io.Discard, in)
	until(t, "the session has ended", func() bool { return w.h.Sessions() == 0 })
	require.NoError(t, conn.Close())

	// One stream of a forwarded connection is not enough.
	l := w.link(t, false)
	failed, err := l.conn.CreateStream(http.Header{"streamType": {"error"}, "port": {"7"}, "requestID": {"1"}})
	require.NoError(t, err)
	text, err := io.ReadAll(failed)
	require.NoError(t, err)
	assert.Equal(t, "timed out waiting for streams", string(text))
	require.NoError(t, l.conn.Close())
}

// The end of the server's context ends the sessions.
func TestServerStops(t *testing.T) {
	everyWay(t, func(t *testing.T, local, websocket bool) {
		w := newWorld(t, local, streams.Options{})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		stoppable := httptest.NewUnstartedServer(w.h)
		stoppable.Config.BaseContext = func(net.Listener) context.Context { return ctx }
		stoppable.Start()
		defer stoppable.Close()
		w.http.Close()
		w.http = stoppable
		got := &firstWrite{first: stop}
		u := w.url(t, "/exec/default/web/main", url.Values{"command": {"hang"}, "output": {"1"}})
		_ = executor(t, websocket, u).StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: got})
		until(t, "the session ends", func() bool { return w.h.Sessions() == 0 })
	})
}

// The credentials of a client are for this server, and not for the runtime.
func TestCredentials(t *testing.T) {
	received := make(chan http.Header, 10)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		received <- req.Header
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer backend.Close()
	all := maps.Clone(requests)
	v4 := webSocketV5.Clone()
	v4.Set("Sec-Websocket-Protocol", "v4.channel.k8s.io")
	all["exec by WebSocket v4"] = request{"/exec/default/web/main?output=1&command=hang", v4}
	for name, r := range all {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true, streams.Options{})
			w.serve(t, fixed{url: backend.URL}, streams.Options{})
			header := r.header.Clone()
			header.Set("Authorization", "Bearer secret")
			header.Set("Cookie", "secret=1")
			if offered := header.Get("Sec-Websocket-Protocol"); offered != "" {
				header.Set("Sec-Websocket-Protocol", "base64url.bearer.authorization.k8s.io.c2VjcmV0, "+offered)
			}
			conn, _, resp := w.raw(t, http.MethodPost, r.target, header)
			assert.Equal(t, http.StatusTeapot, resp.StatusCode)
			require.NoError(t, conn.Close())
			got := <-received
			assert.Empty(t, got["Authorization"])
			assert.Empty(t, got["Cookie"])
			for _, offered := range got["Sec-Websocket-Protocol"] {
				assert.NotContains(t, offered, "bearer")
			}
		})
	}
}

// A server of streams cannot lead the client elsewhere, set a cookie, or send without end.
func TestAnswersThatAreNoUpgrade(t *testing.T) {
	endless := func(w io.Writer) {
		for data := make([]byte, 1<<16); ; {
			if _, err := w.Write(data); err != nil {
				return
			}
		}
	}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Location", "http://evil.example")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Content-Type", "text/kind")
		switch req.URL.Path {
		case "/redirect":
			w.WriteHeader(http.StatusFound)
		case "/endless":
			endless(w)
		case "/refused":
			w.WriteHeader(http.StatusTeapot)
			endless(w)
		}
	}))
	defer backend.Close()
	for name, r := range requests {
		for path, code := range map[string]int{"/redirect": http.StatusInternalServerError,
			"/endless": http.StatusInternalServerError, "/refused": http.StatusTeapot} {
			t.Run(name+path, func(t *testing.T) {
				w := newWorld(t, true, streams.Options{})
				w.serve(t, fixed{url: backend.URL + path}, streams.Options{})
				conn, _, resp := w.raw(t, http.MethodPost, r.target, r.header)
				assert.Equal(t, code, resp.StatusCode)
				assert.Empty(t, resp.Header["Location"])
				assert.Empty(t, resp.Header["Set-Cookie"])
				n, err := io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				assert.LessOrEqual(t, n, int64(70<<10))
				require.NoError(t, conn.Close())
			})
		}
	}
}

// A client that requests a terminal where there is none may still send sizes.
func TestSizesWithoutTerminal(t *testing.T) {
	for name, local := range map[string]bool{"local": true, "remote": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, local, streams.Options{})
			conn, in, resp := w.raw(t, http.MethodGet, "/attach/default/web/main?input=1&output=1&tty=1", webSocketV5)
			require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
			send := func(channel byte, text string) {
				data := append([]byte{channel}, text...)
				_, err := conn.Write(append([]byte{0x82, 0x80 | byte(len(data)), 0, 0, 0, 0}, data...))
				require.NoError(t, err)
			}
			send(4, `{"Width":1,"Height":2}`)
			send(0, "from stdin")
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
			var got []byte
			for !bytes.Contains(got, []byte("from stdin")) {
				b, err := in.ReadByte()
				require.NoError(t, err, "%q", got)
				got = append(got, b)
			}
			require.NoError(t, conn.Close())
		})
	}
}
