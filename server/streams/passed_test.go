package streams_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	goruntime "runtime"
	"sync"
	"testing"
	"time"

	"github.com/moby/spdystream/spdy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/server/streams"
)

// The agent passes the bytes of sessions to the server of a runtime, also frames that it would refuse itself,
// and those of streams without end. It takes neither memory nor goroutines for them.
func TestOnlyBytesArePassed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	received := make(chan []byte, 1)
	var backend sync.WaitGroup
	backend.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(conn)
			_, err = http.ReadRequest(in)
			assert.NoError(t, err)
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
				"SPDY/3.1\r\n\r\n")
			sum := sha256.New()
			_, _ = io.Copy(sum, in)
			_ = conn.Close()
			received <- sum.Sum(nil)
		}
	})
	var sent bytes.Buffer
	framer, err := spdy.NewFramer(&sent, &sent)
	require.NoError(t, err)
	for i := range 50_000 {
		require.NoError(t, framer.WriteFrame(&spdy.SynStreamFrame{StreamId: spdy.StreamId(1 + 2*(i%20_000)),
			Headers: http.Header{"Streamtype": {"error"}, "Port": {"7"},
				"Requestid": {time.Unix(int64(i), 0).String()}}}))
		require.NoError(t, framer.WriteFrame(&spdy.HeadersFrame{StreamId: 1, Headers: http.Header{"A": {"b"}}}))
	}
	for _, name := range []string{"exec by SPDY", "attach by SPDY", "forward by SPDY"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true, streams.Options{})
			w.serve(t, fixed{url: "http://" + l.Addr().String()}, streams.Options{})
			goroutines, memory := goruntime.NumGoroutine(), heap()
			conn, _, resp := w.raw(t, http.MethodPost, requests[name].target, requests[name].header)
			require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
			most, held := 0, int64(0)
			for rest := sent.Bytes(); len(rest) > 0; {
				n := min(len(rest), 256<<10)
				_, err := conn.Write(rest[:n])
				require.NoError(t, err)
				rest = rest[n:]
				most, held = max(most, goruntime.NumGoroutine()-goroutines), max(held, heap()-memory)
			}
			assert.Less(t, most, 20, "goroutines")
			assert.Less(t, held>>10, int64(2<<10), "KiB")
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			want := sha256.Sum256(sent.Bytes())
			assert.Equal(t, want[:], <-received, "no byte is changed")
			require.NoError(t, conn.Close())
		})
	}
	_ = l.Close()
	backend.Wait()
}
