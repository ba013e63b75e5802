package streaming

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/moby/spdystream/spdy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve serves a process that hangs at /exec, and connections to ports that hang at /forward. At the end of the
// test no goroutine is left, which TestMain asserts.
func serve(t *testing.T, opts Options) (address string, server *Server) {
	opts.CheckPeriod, opts.Linger = 20*time.Millisecond, 20*time.Millisecond
	server = New(opts)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		server.Serve(w, req, func(s *Session, req *http.Request) {
			if req.URL.Path == "/forward" {
				s.ServeForward(w, req, "sandbox", nil, func(ctx context.Context, port int32,
					_ io.ReadWriteCloser) error {
					if port == 9 {
						return fmt.Errorf("refused")
					}
					<-ctx.Done()
					return ctx.Err()
				})
				return
			}
			s.ServeProcess(w, req, Requested{Stdin: true, Stdout: true}, false,
				"failed", func(ctx context.Context, _ Streams) (int32, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				})
		})
	}))
	t.Cleanup(web.Close)
	return web.Listener.Addr().String(), server
}

// hostile is a client of SPDY that sends any frames.
type hostile struct {
	net.Conn
	t      *testing.T
	frames *spdy.Framer
	out    bytes.Buffer // what flush sends
}

func dial(t *testing.T, address, path, protocol string) *hostile {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "+
		"SPDY/3.1\r\nX-Stream-Protocol-Version: %s\r\n\r\n", path, protocol)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	h := &hostile{Conn: conn, t: t}
	h.frames, err = spdy.NewFramer(&h.out, &h.out)
	require.NoError(t, err)
	return h
}

func (h *hostile) add(frame spdy.Frame) { require.NoError(h.t, h.frames.WriteFrame(frame)) }

// open adds a stream with the headers, which are names and values.
func (h *hostile) open(id spdy.StreamId, headers ...string) {
	header := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	h.add(&spdy.SynStreamFrame{StreamId: id, Headers: header})
}

func (h *hostile) flush() error {
	_, err := h.Conn.Write(h.out.Bytes())
	h.out.Reset()
	return err
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("it is still not so that %s\n%s", what, stacks[:goruntime.Stack(stacks, true)])
		}
	}
}

// Frames after which the library of SPDY would wait for ever, at any stage.
func TestFramesThatWouldWaitForEver(t *testing.T) {
	exec := func(h *hostile) {
		for i, kind := range []string{"error", "stdin", "stdout"} {
			h.open(spdy.StreamId(1+2*i), "streamType", kind)
		}
	}
	pair := func(h *hostile, id spdy.StreamId, port string) {
		h.open(id, "streamType", "error", "port", port, "requestID", fmt.Sprint(id))
		h.open(id+2, "streamType", "data", "port", port, "requestID", fmt.Sprint(id))
	}
	for name, c := range map[string]struct {
		path, protocol string
		send           func(*hostile)
	}{
		"a stream and its reset": {"/exec", "v4.channel.k8s.io", func(h *hostile) {
			exec(h)
			for id := range spdy.StreamId(3) {
				h.add(&spdy.RstStreamFrame{StreamId: 1 + 2*id, Status: spdy.Cancel})
			}
		}},
		"headers": {"/exec", "v4.channel.k8s.io", func(h *hostile) {
			exec(h)
			h.add(&spdy.HeadersFrame{StreamId: 1, Headers: http.Header{"A": {"b"}}})
		}},
		"data that nothing reads": {"/exec", "v4.channel.k8s.io", func(h *hostile) {
			exec(h)
			for range 300 {
				for _, id := range []spdy.StreamId{1, 3, 5} {
					h.add(&spdy.DataFrame{StreamId: id, Data: make([]byte, 100)})
				}
			}
		}},
		"data before all streams": {"/exec", "v4.channel.k8s.io", func(h *hostile) {
			h.open(1, "streamType", "stdin")
			for range 300 {
				h.add(&spdy.DataFrame{StreamId: 1, Data: make([]byte, 100)})
			}
		}},
		"half of a pair, with data": {"/forward", "portforward.k8s.io", func(h *hostile) {
			h.open(1, "streamType", "error", "port", "7", "requestID", "1")
			h.add(&spdy.DataFrame{StreamId: 1, Data: make([]byte, 100)})
		}},
		"pairs and their resets": {"/forward", "portforward.k8s.io", func(h *hostile) {
			for i := range spdy.StreamId(20) {
				pair(h, 1+4*i, "7")
				h.add(&spdy.RstStreamFrame{StreamId: 1 + 4*i, Status: spdy.Cancel})
				h.add(&spdy.RstStreamFrame{StreamId: 3 + 4*i, Status: spdy.Cancel})
			}
		}},
		"data on the stream of the error": {"/forward", "portforward.k8s.io", func(h *hostile) {
			pair(h, 1, "9")
			h.add(&spdy.DataFrame{StreamId: 3, Flags: spdy.DataFlagFin})
			for range 300 {
				h.add(&spdy.DataFrame{StreamId: 1, Data: make([]byte, 100)})
			}
		}},
		"a reply of the client": {"/forward", "portforward.k8s.io", func(h *hostile) {
			pair(h, 1, "7")
			h.add(&spdy.SynReplyFrame{StreamId: 1, Headers: http.Header{}})
		}},
		"the end of the connection, and more": {"/forward", "portforward.k8s.io", func(h *hostile) {
			pair(h, 1, "7")
			h.add(&spdy.GoAwayFrame{LastGoodStreamId: 1})
			pair(h, 5, "7")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			address, server := serve(t, Options{SetupTimeout: 50 * time.Millisecond})
			before := goruntime.NumGoroutine()
			for _, wait := range []time.Duration{0, 0, 0, time.Millisecond, 10 * time.Millisecond,
				80 * time.Millisecond} {
				h := dial(t, address, c.path, c.protocol)
				c.send(h)
				_ = h.flush()
				time.Sleep(wait) // closed at another stage
				_ = h.Close()
			}
			until(t, "the sessions have ended", func() bool { return server.Sessions() == 0 })
			until(t, "no goroutine is left", func() bool { return goruntime.NumGoroutine() <= before })
		})
	}
}

// A client that does not read cannot make the server start a goroutine for each frame, nor keep the headers
// of many streams.
func TestFloodsOfAClientThatDoesNotRead(t *testing.T) {
	large := strings.Repeat("x", 500<<10) // a few hundred bytes when it is compressed
	for name, send := range map[string]func(h *hostile, i int){
		"numbers that do not rise": func(h *hostile, i int) { h.open(1, "streamType", "other") },
		"streams that are refused": func(h *hostile, i int) { h.open(spdy.StreamId(1+2*i), "streamType", "other") },
		"streams with large headers": func(h *hostile, i int) {
			for id := range uint32(1000) { // the replies to which fill the connection
				h.add(&spdy.PingFrame{Id: 1 + 2*id})
			}
			h.open(spdy.StreamId(1+2*i), "streamType", "error", "port", "7", "requestID", fmt.Sprint(i), "x", large)
		},
		"half of pairs": func(h *hostile, i int) {
			h.open(spdy.StreamId(1+2*i), "streamType", "error", "port", "7", "requestID", fmt.Sprint(i))
		},
		"pings": func(h *hostile, i int) { h.add(&spdy.PingFrame{Id: uint32(1 + 2*i)}) },
		"pairs to a port that refuses": func(h *hostile, i int) {
			h.open(spdy.StreamId(1+4*i), "streamType", "error", "port", "9", "requestID", fmt.Sprint(i))
			h.open(spdy.StreamId(3+4*i), "streamType", "data", "port", "9", "requestID", fmt.Sprint(i))
			h.add(&spdy.DataFrame{StreamId: spdy.StreamId(3 + 4*i), Flags: spdy.DataFlagFin})
		},
	} {
		t.Run(name, func(t *testing.T) {
			address, server := serve(t, Options{MaxForwards: 100})
			before, memory := goruntime.NumGoroutine(), heap()
			h := dial(t, address, "/forward", "portforward.k8s.io")
			require.NoError(t, h.Conn.(*net.TCPConn).SetReadBuffer(4<<10))
			most, held := 0, int64(0)
			count := 20_000
			if strings.Contains(name, "large") {
				count = 150
			}
			for i := range count {
				send(h, i)
				if i%1000 == 999 || count < 1000 {
					require.NoError(t, h.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
					if h.flush() != nil { // nothing more is read, or the session has ended
						break
					}
					most = max(most, goruntime.NumGoroutine()-before)
				}
			}
			most, held = max(most, goruntime.NumGoroutine()-before), max(held, heap()-memory)
			assert.Less(t, most, 500, "goroutines")
			assert.Less(t, held>>20, int64(30), "MiB")
			_ = h.Close()
			until(t, "the sessions have ended", func() bool { return server.Sessions() == 0 })
			until(t, "no goroutine is left", func() bool { return goruntime.NumGoroutine() <= before })
		})
	}
}

func heap() int64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What the library gets of a client's control frames.
func TestClientFrames(t *testing.T) {
	t.Parallel()
	control := func(kind uint16, data ...byte) []byte { return spdyControl(kind, data) }
	syn := func(id uint32) []byte {
		return control(1, append(binary.BigEndian.AppendUint32(nil, id), 0, 0, 0, 0, 0, 0)...)
	}
	for name, c := range map[string]struct {
		in   [][]byte
		want []byte
		err  error
	}{
		"streams":           {[][]byte{syn(1), syn(7)}, append(syn(1), syn(7)...), nil},
		"the same number":   {[][]byte{syn(3), syn(3)}, syn(3), errStreamID},
		"a high number":     {[][]byte{syn(1 << 31)}, nil, errStreamID},
		"a short stream":    {[][]byte{control(1, 0, 0, 0, 1)}, nil, errControlFrame},
		"a reset":           {[][]byte{control(3, 0, 0, 0, 5, 0, 0, 0, 1)}, spdyData(5, 1, nil), nil},
		"a long reset":      {[][]byte{control(3, 0, 0, 0, 5, 0, 0, 0, 1, 0)}, nil, errControlFrame},
		"a reply":           {[][]byte{control(2, 0, 0, 0, 1, 0, 0)}, nil, errControlFrame},
		"headers":           {[][]byte{control(8, 0, 0, 0, 1, 0, 0)}, nil, errControlFrame},
		"a ping and an end": {[][]byte{control(6, 0, 0, 0, 1), control(7, 0, 0, 0, 0, 0, 0, 0, 0)}, append(control(6, 0, 0, 0, 1), control(7, 0, 0, 0, 0, 0, 0, 0, 0)...), nil},
	} {
		s := &Session{ctx: t.Context(), begins: make(chan struct{}, maxBegins)}
		got, err := io.ReadAll(s.clientFrames(bytes.NewReader(bytes.Join(c.in, nil))))
		assert.ErrorIs(t, err, c.err, name)
		assert.Equal(t, string(c.want), string(got), name)
	}
}
