package streams_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/server/streams"
)

// A slow client receives all, though the command ended long ago and the client sends pings, which
// a connection that is closed would answer with a reset.
func TestSlowClientReceivesAll(t *testing.T) {
	for name, local := range map[string]bool{"local": true, "remote": false} {
		t.Run(name, func(t *testing.T) {
			const size = 300_000 // fits into the buffers of the connection, but not into the client's
			w := newWorld(t, local, streams.Options{})
			w.h.LingerFor(20 * time.Millisecond)
			small := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
				cerr := c.Control(func(fd uintptr) {
					err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET,
						syscall.SO_RCVBUF, 8<<10)
				})
				return errors.Join(cerr, err)
			}}
			conn, err := small.DialContext(t.Context(), "tcp", strings.TrimPrefix(w.http.URL, "http://"))
			require.NoError(t, err)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				w.http.URL+"/exec/default/web/main?output=1&command=pour&command="+fmt.Sprint(size), nil)
			require.NoError(t, err)
			req.Header = webSocketV5
			require.NoError(t, req.Write(conn))
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, req)
			require.NoError(t, err)
			require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
			until(t, "the command has ended", func() bool { return w.m.running.Load() == 0 })
			for range 10 {
				time.Sleep(10 * time.Millisecond)                    // several times the time to close the connection
				_, err := conn.Write([]byte{0x89, 0x80, 0, 0, 0, 0}) // a ping
				require.NoError(t, err)
			}
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
			got, err := io.ReadAll(in)
			require.NoError(t, err)
			assert.Greater(t, len(got), size)
			assert.Contains(t, string(got[len(got)-100:]), `"Success"`)
			require.NoError(t, conn.Close())
			until(t, "the session has ended", func() bool { return w.h.Sessions() == 0 })
		})
	}
}
