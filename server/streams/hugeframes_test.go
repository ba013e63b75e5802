package streams_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/kubeletkit/kubeletkit/server/streams"
)

// pipes is a listener whose connections have no buffers.
type pipes chan net.Conn

func newPipes(t *testing.T, h http.Handler) pipes {
	p, ended := make(pipes), make(chan struct{})
	srv := &http.Server{Handler: h}
	go func() {
		defer close(ended)
		_ = srv.Serve(p)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-ended
	})
	return p
}

// dial returns the client's end of a new connection.
func (p pipes) dial() net.Conn {
	client, server := net.Pipe()
	p <- server
	return client
}

// Accept implements [net.Listener].
func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

// Close implements [net.Listener].
func (p pipes) Close() error {
	close(p)
	return nil
}

// Addr implements [net.Listener].
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// upgrade opens a session of a command that does not read its input.
func upgrade(t *testing.T, conn net.Conn, header string) {
	_, err := fmt.Fprintf(conn, "GET /exec/default/web/main?input=1&output=1&command=hang HTTP/1.1\r\nHost: "+
		"localhost\r\nConnection: Upgrade\r\n%s\r\n\r\n", header)
	require.NoError(t, err)
	// a server of SPDY sends nothing more before it receives something
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
}

const (
	webSocketHeader = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
		"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io"
	spdyHeader = "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io"
)

// Clients that send frames of the largest size that the protocols have, complete or not, to a command that
// does not read them, take a bounded amount of memory.
func TestHugeFrames(t *testing.T) {
	block := make([]byte, 15<<20)
	for name, begin := range map[string]func(t *testing.T, conn net.Conn) (write func() error){
		"WebSocket": func(t *testing.T, conn net.Conn) func() error {
			upgrade(t, conn, webSocketHeader)
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			header := append(binary.BigEndian.AppendUint64([]byte{0x82, 0x80 | 127}, 2*uint64(len(block))+100), 0, 0, 0,
				0)
			if _, err := conn.Write(header); err != nil {
				return func() error { return err }
			}
			left := 2
			return func() error {
				if left--; left < 0 {
					return io.EOF
				}
				_, err := conn.Write(block)
				return err
			}
		},
		"SPDY": func(t *testing.T, raw net.Conn) func() error {
			upgrade(t, raw, spdyHeader)
			conn, err := spdy.NewClientConnection(raw)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			var stdin io.Writer
			for _, kind := range []string{"error", "stdout", "stdin"} {
				stdin, err = conn.CreateStream(http.Header{"Streamtype": {kind}})
				require.NoError(t, err)
			}
			return func() error {
				_, err := stdin.Write(block)
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handlers := streams.New(node{}, &machine{}, streams.Options{})
				listener := newPipes(t, handlers)
				before := heap()
				var sent atomic.Int64
				var clients sync.WaitGroup
				var conns []net.Conn
				for range 8 {
					conn := listener.dial()
					conns = append(conns, conn)
					write := begin(t, conn)
					clients.Go(func() {
						for write() == nil {
							sent.Add(1)
						}
					})
				}
				synctest.Wait() // nothing more is received
				held := (heap() - before) >> 20
				t.Logf("%d MiB are held; %d MiB were sent as a whole", held, sent.Load()*int64(len(block))>>20)
				assert.Less(t, held, int64(200), "MiB")
				for _, conn := range conns {
					_ = conn.Close()
				}
				clients.Wait()
				time.Sleep(6 * time.Second) // a check whether the clients are still there
				synctest.Wait()
				assert.Zero(t, handlers.Sessions(), "it is noticed that the clients are gone, although nothing is read")
			})
		})
	}
}

// Headers that are large when they are decompressed end the connection. It takes virtual time: if all was
// written before, the library waits for 30 s.
func TestHugeSPDYHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw := newPipes(t, streams.New(node{}, &machine{}, streams.Options{})).dial()
		upgrade(t, raw, spdyHeader)
		conn, err := spdy.NewClientConnection(raw)
		require.NoError(t, err)
		defer conn.Close()
		header := http.Header{"Streamtype": {"stdin"}}
		for i := range 16 {
			header.Set(fmt.Sprint("x", i), fmt.Sprintf("%d%s", i, strings.Repeat("x", 1<<20-10)))
		}
		_, err = conn.CreateStream(header)
		require.Error(t, err)
	})
}
