package streams_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/kubeletkit/kubeletkit/server/streams"
)

// upgrade opens a session of a command that does not read its input.
func upgrade(t *testing.T, srv *httptest.Server, header string) net.Conn {
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	_, err = fmt.Fprintf(conn, "GET /exec/default/web/main?input=1&output=1&command=hang HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n%s\r\n\r\n", header)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil) // the server sends nothing more before it receives something
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	return conn
}

const (
	webSocketHeader = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io"
	spdyHeader      = "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io"
)

// Clients that send frames of the largest size that the protocols have, complete or not, to a command that
// does not read them, take a bounded amount of memory.
func TestHugeFrames(t *testing.T) {
	block := make([]byte, 15<<20)
	for name, send := range map[string]func(t *testing.T, srv *httptest.Server) (io.Closer, func() error){
		"WebSocket": func(t *testing.T, srv *httptest.Server) (io.Closer, func() error) {
			conn := upgrade(t, srv, webSocketHeader)
			header := append(binary.BigEndian.AppendUint64([]byte{0x82, 0x80 | 127}, 2*uint64(len(block))+100), 0, 0, 0, 0)
			if _, err := conn.Write(header); err != nil {
				return conn, func() error { return err }
			}
			left := 2
			return conn, func() error {
				if left--; left < 0 {
					return io.EOF
				}
				_, err := conn.Write(block)
				return err
			}
		},
		"SPDY": func(t *testing.T, srv *httptest.Server) (io.Closer, func() error) {
			raw := upgrade(t, srv, spdyHeader)
			conn, err := spdy.NewClientConnection(raw)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			var stdin io.Writer
			for _, kind := range []string{"error", "stdout", "stdin"} {
				stdin, err = conn.CreateStream(http.Header{"Streamtype": {kind}})
				require.NoError(t, err)
			}
			return raw, func() error { // the library would wait for the write
				_, err := stdin.Write(block)
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			handlers := streams.New(node{}, &machine{}, streams.Options{})
			srv := httptest.NewServer(handlers)
			defer srv.Close()
			var before, after goruntime.MemStats
			goruntime.GC()
			goruntime.ReadMemStats(&before)
			var sent atomic.Int64
			var clients sync.WaitGroup
			var conns []io.Closer
			for range 8 {
				conn, write := send(t, srv)
				conns = append(conns, conn)
				clients.Go(func() {
					for write() == nil {
						sent.Add(1)
					}
				})
			}
			last, calm := int64(-1), 0
			require.Eventually(t, func() bool {
				now := sent.Load()
				if calm++; now != last {
					last, calm = now, 0
				}
				return calm > 10
			}, time.Minute, 100*time.Millisecond)
			goruntime.GC()
			goruntime.ReadMemStats(&after)
			held := int64(after.HeapAlloc-before.HeapAlloc) >> 20
			t.Logf("%d MiB are held of %d MiB that were sent", held, sent.Load()*int64(len(block))>>20)
			assert.Less(t, held, int64(200), "MiB")
			for _, conn := range conns {
				_ = conn.Close()
			}
			clients.Wait()
			require.Eventually(t, func() bool { return handlers.Sessions() == 0 }, time.Minute, 50*time.Millisecond, "it is noticed that the clients are gone, although nothing is read")
		})
	}
}

// Headers that are large when they are decompressed end the connection.
func TestHugeSPDYHeaders(t *testing.T) {
	srv := httptest.NewServer(streams.New(node{}, &machine{}, streams.Options{}))
	defer srv.Close()
	conn, err := spdy.NewClientConnection(upgrade(t, srv, spdyHeader))
	require.NoError(t, err)
	defer conn.Close()
	header := http.Header{"Streamtype": {"stdin"}}
	for i := range 16 {
		header.Set(fmt.Sprint("x", i), fmt.Sprintf("%d%s", i, strings.Repeat("x", 1<<20-10)))
	}
	_, err = conn.CreateStream(header)
	require.Error(t, err)
}
