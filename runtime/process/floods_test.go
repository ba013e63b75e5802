//go:build linux

package process

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	goruntime "runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// calm is a connection that can be closed more than once.
type calm struct{ net.Conn }

func (c calm) Close() error {
	_ = c.Conn.Close()
	return nil
}

// session opens the URL of a stream by SPDY.
func session(t testing.TB, at, protocol string) (net.Conn, httpstream.Connection) {
	t.Helper()
	u, err := url.Parse(at)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	req, err := http.NewRequest(http.MethodPost, at, nil)
	require.NoError(t, err)
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"},
		"X-Stream-Protocol-Version": {protocol}}
	require.NoError(t, req.Write(conn))
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	client, err := spdy.NewClientConnection(calm{conn})
	require.NoError(t, err)
	return conn, client
}

func files(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// Streams of forwarded connections that are never complete have a bound, and nothing of them is left.
func TestForwardedStreamsAreBounded(t *testing.T) {
	n := startNode(t, Options{})
	p := n.pod()
	before := goruntime.NumGoroutine()
	for range 3 {
		resp, err := n.rs.PortForward(context.Background(), &criv1.PortForwardRequest{PodSandboxId: p.id})
		require.NoError(t, err)
		conn, client := session(t, resp.GetUrl(), "portforward.k8s.io")
		most := 0
		for id := range 3000 {
			_, err := client.CreateStream(http.Header{"streamType": {"error"}, "port": {"7"},
				"requestID": {string(rune('a' + id))}})
			most = max(most, goruntime.NumGoroutine())
			if err != nil {
				break
			}
		}
		assert.Less(t, most-before, 200, "goroutines")
		_ = conn.Close()
		_ = client.Close()
	}
	eventually(t, func() bool { return goruntime.NumGoroutine() <= before+3 }, "goroutines stay")
}

// A client that leaves before it has opened its streams leaves nothing behind.
func TestClientsThatOpenNoStreams(t *testing.T) {
	n := startNode(t, Options{})
	id := n.pod().run(shell("c", "sleep 1000"))
	before := files(t)
	for range 20 {
		resp, err := n.rs.Exec(context.Background(), &criv1.ExecRequest{ContainerId: id, Cmd: []string{"true"},
			Stdout: true})
		require.NoError(t, err)
		conn, client := session(t, resp.GetUrl(), "v4.channel.k8s.io")
		_ = conn.Close()
		_ = client.Close()
	}
	// The server may open some for the container after it has started it; a session that leaves one would leave 20.
	eventually(t, func() bool { return files(t) <= before+10 }, "descriptors stay")
}
