package streams_test

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/server/streams"
)

// answering is a server of streams that answers each request with the text, and with the function if
// it is not nil. It returns its URL.
func answering(t *testing.T, text string, more func(net.Conn)) string {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				_, _ = io.WriteString(conn, text)
				if more != nil {
					more(conn)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// An upgrade has no headers for the client beside those of the upgrade, no text of the runtime's
// server, and no answers before it.
func TestHeadersOfAnUpgrade(t *testing.T) {
	v4 := webSocketV5.Clone()
	v4.Set("Sec-Websocket-Protocol", "v4.channel.k8s.io")
	for name, r := range map[string]request{
		"SPDY": requests["exec by SPDY"], "forward": requests["forward by SPDY"], "WebSocket": {"/exec/default/web/main?output=1&command=hang", v4},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true, streams.Options{})
			rt := fixed{url: answering(t, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </evil>; "+
				"rel=preload\r\nSet-Cookie: a=b\r\n\r\n"+
				"HTTP/1.1 101 Welcome to evil\r\nConnection: Upgrade\r\nUpgrade: "+r.header.Get("Upgrade")+"\r\n"+
				"Set-Cookie: a=b\r\nLocation: http://evil.example\r\nServer: evil\r\nAlt-Svc: "+
				"h3=\":1\"\r\nContent-Length: 5\r\n"+
				"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nSec-WebSocket-Accept: "+
				"abc\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\nthe stream", nil)}
			w.serve(t, rt, streams.Options{})
			conn, in, resp := w.raw(t, http.MethodGet, r.target, r.header)
			assert.Equal(t, "101 Switching Protocols", resp.Status)
			assert.Equal(t, []string{"Connection", "Sec-Websocket-Accept", "Sec-Websocket-Protocol", "Upgrade",
				"X-Stream-Protocol-Version"},
				slices.Sorted(maps.Keys(resp.Header)))
			text, err := io.ReadAll(in)
			require.NoError(t, err)
			assert.Equal(t, "the stream", string(text))
			require.NoError(t, conn.Close())
		})
	}
}

// Answers before the last one do not go on for ever.
func TestEndlessAnswersBeforeTheLast(t *testing.T) {
	w := newWorld(t, true, streams.Options{})
	rt := fixed{url: answering(t, "", func(conn net.Conn) {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: </evil>\r\n\r\n")
		}
	})}
	w.serve(t, rt, streams.Options{SetupTimeout: 50 * time.Millisecond})
	for name, r := range requests {
		t.Run(name, func(t *testing.T) {
			conn, _, resp := w.raw(t, http.MethodPost, r.target, r.header)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, http.StatusInternalServerError, resp.StatusCode)
			assert.Contains(t, string(text), "error dialing backend: ")
			require.NoError(t, conn.Close())
		})
	}
}

// Sizes of a terminal that never end, or that are none, cost little memory and do not hold up stdin.
func TestBadSizes(t *testing.T) {
	const frame = 32 << 10
	for name, text := range map[string]string{
		"a long number":   strings.Repeat("1", frame),
		"a long string":   `{"Width":"` + strings.Repeat("x", frame),
		"only spaces":     strings.Repeat(" ", frame),
		"no JSON":         "}" + strings.Repeat("}", frame),
		"a list of lists": strings.Repeat("[", frame),
	} {
		for where, local := range map[string]bool{"local": true, "remote": false} {
			t.Run(name+"/"+where, func(t *testing.T) {
				w := newWorld(t, local, streams.Options{})
				conn, in, resp := w.raw(t, http.MethodGet, "/exec/default/web/main?input=1&output=1&tty=1&command=cat",
					webSocketV5)
				require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
				send := func(channel byte, text string) {
					n := len(text) + 1
					_, err := conn.Write(append([]byte{0x82, 0x80 | 127, 0, 0, 0, 0, byte(n >> 24), byte(n >> 16),
						byte(n >> 8), byte(n), 0, 0, 0, 0, channel}, text...))
					require.NoError(t, err)
				}
				require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
				before := heap()
				send(4, text)
				for range 256 { // 8 MB
					send(4, text[len(text)-frame:])
				}
				send(0, "from stdin")
				var got []byte
				for !strings.Contains(string(got), "from stdin") {
					b, err := in.ReadByte()
					require.NoError(t, err, "%q", got)
					got = append(got, b)
				}
				assert.Less(t, heap()-before, int64(4<<20), "bytes")
				require.NoError(t, conn.Close())
			})
		}
	}
}

// heap returns the memory that is in use, in bytes.
func heap() int64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A server of SPDY sends nothing before the client does: clients drop what comes together with the
// answer to their request.
func TestTheClientSendsFirst(t *testing.T) {
	w := newWorld(t, true, streams.Options{})
	opened := map[string]io.Reader{}
	for _, name := range []string{"exec by SPDY", "attach by SPDY", "forward by SPDY"} {
		conn, in, resp := w.raw(t, http.MethodPost, requests[name].target, requests[name].header)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(200*time.Millisecond))) // four periods of checks
		defer conn.Close()
		opened[name] = in
	}
	for name, in := range opened {
		got, err := io.ReadAll(in)
		require.ErrorContains(t, err, "timeout")
		assert.Empty(t, got, name)
	}
}
