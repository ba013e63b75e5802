package streams_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kubeletkit/kubeletkit/server/streams"
)

// dialer returns a client of port-forward, by SPDY in WebSocket or by SPDY.
func (w *world) dialer(t testing.TB, websocket bool) httpstream.Dialer {
	t.Helper()
	u := w.url(t, "/portForward/default/web", nil)
	config := &rest.Config{Host: u.Host}
	if websocket {
		d, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, config)
		require.NoError(t, err)
		return d
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	require.NoError(t, err)
	return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
}

// link is the connection of a client of port-forward.
type link struct {
	t    testing.TB
	conn httpstream.Connection
	next int
}

func (w *world) link(t testing.TB, websocket bool) *link {
	t.Helper()
	conn, protocol, err := w.dialer(t, websocket).Dial("portforward.k8s.io")
	require.NoError(t, err)
	require.Equal(t, "portforward.k8s.io", protocol)
	return &link{t: t, conn: conn}
}

// open opens a connection to a port, as kubectl does.
func (l *link) open(port int) (data, failed httpstream.Stream, err error) {
	l.next++
	header := http.Header{}
	header.Set("streamType", "error")
	header.Set("port", fmt.Sprint(port))
	header.Set("requestID", fmt.Sprint(l.next))
	if failed, err = l.conn.CreateStream(header); err != nil {
		return nil, nil, err
	}
	_ = failed.Close()
	header.Set("streamType", "data")
	data, err = l.conn.CreateStream(header)
	return data, failed, err
}

func TestPortForward(t *testing.T) {
	everyWay(t, func(t *testing.T, local, websocket bool) {
		w := newWorld(t, local, streams.Options{})
		l := w.link(t, websocket)
		defer l.conn.Close()

		// Several connections at once carry 10 MB in each direction, byte by byte.
		want := make([]byte, 10<<20)
		_, _ = pattern{}.Read(want)
		var all sync.WaitGroup
		for range 3 {
			data, failed, err := l.open(7)
			require.NoError(t, err)
			all.Go(func() {
				_, _ = io.Copy(data, bytes.NewReader(want))
				_ = data.Close()
			})
			all.Go(func() {
				got, err := io.ReadAll(data)
				assert.NoError(t, err)
				assert.Truef(t, bytes.Equal(want, got), "%d bytes have returned", len(got))
				text, _ := io.ReadAll(failed)
				assert.Empty(t, string(text))
				l.conn.RemoveStreams(data, failed)
			})
		}
		all.Wait()

		data, _, err := l.open(11)
		require.NoError(t, err)
		got, err := io.ReadAll(data)
		require.NoError(t, err)
		assert.Equal(t, "welcome to s1", string(got))

		_, failed, err := l.open(9)
		require.NoError(t, err)
		text, err := io.ReadAll(failed)
		require.NoError(t, err)
		assert.Contains(t, string(text), "error forwarding port 9 to pod s1")
		assert.Contains(t, string(text), "connection to port 9 refused")
	})
}

// The client of kubectl works as it is.
func TestPortForwardKubectl(t *testing.T) {
	everyWay(t, func(t *testing.T, local, websocket bool) {
		w := newWorld(t, local, streams.Options{})
		stop, ready := make(chan struct{}), make(chan struct{})
		f, err := portforward.NewOnAddressesForStreaming(w.dialer(t, websocket), []string{"127.0.0.1"}, []string{":7"},
			stop, ready, io.Discard, io.Discard)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- f.ForwardPorts() }()
		<-ready
		ports, err := f.GetPorts()
		require.NoError(t, err)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
		require.NoError(t, err)
		_, err = io.WriteString(conn, "hello")
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		got, err := io.ReadAll(conn)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(got))
		require.NoError(t, conn.Close())
		close(stop)
		require.NoError(t, <-ended)
	})
}

// Streams that are no connection are refused, and more connections than the maximum.
func TestPortForwardLimits(t *testing.T) {
	w := newWorld(t, true, streams.Options{})
	w.h.MaxForwards(2)
	l := w.link(t, false)
	defer l.conn.Close()
	for _, header := range []http.Header{
		{"streamType": {"data"}, "requestID": {"a"}},
		{"streamType": {"data"}, "requestID": {"a"}, "port": {"0"}},
		{"streamType": {"data"}, "requestID": {"a"}, "port": {"65536"}},
		{"streamType": {"data"}, "port": {"7"}},
		{"streamType": {"other"}, "requestID": {"a"}, "port": {"7"}},
	} {
		_, err := l.conn.CreateStream(header)
		require.Error(t, err, header)
	}
	_, _, err := l.open(13)
	require.NoError(t, err)
	_, _, err = l.open(13)
	require.NoError(t, err)
	_, _, err = l.open(13)
	require.Error(t, err)
}

// A WebSocket client without SPDY names its ports in the query.
func TestPortForwardChannels(t *testing.T) {
	header := http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"MDEyMzQ1Njc4OWFiY2RlZg=="}, "Origin": {"http://localhost"},
	}
	for where, local := range map[string]bool{"local": true, "remote": false} {
		t.Run(where, func(t *testing.T) {
			w := newWorld(t, local, streams.Options{})
			conn, in, resp := w.raw(t, http.MethodGet, "/portForward/default/web?port=11&port=9", header)
			require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
			got, err := io.ReadAll(in) // it ends when both connections have ended
			require.NoError(t, err)
			for _, want := range []string{"\x00\x0b\x00", "\x01\x0b\x00", "\x02\x09\x00", "\x03\x09\x00",
				"\x00welcome to s1", "\x03error forwarding port 9 to pod s1"} {
				assert.Contains(t, string(got), want)
			}
			require.NoError(t, conn.Close())

			conn, _, resp = w.raw(t, http.MethodGet, "/portForward/default/web?"+strings.Repeat("port=7&", 128), header)
			assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
			require.NoError(t, conn.Close())
		})
	}
}
