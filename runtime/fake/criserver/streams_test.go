package criserver_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake/criserver"
)

// socket is the plainest client of a WebSocket with the channels of kubelet's
// protocol, as much of RFC 6455 as it takes.
type socket struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// dial opens the stream at an address that the runtime gave out.
func dial(t *testing.T, address string) *socket {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: "+
		"v4.channel.k8s.io\r\n\r\n",
		u.RequestURI(), u.Host)
	require.NoError(t, err)
	s := &socket{t, conn, bufio.NewReader(conn)}
	resp, err := http.ReadResponse(s.in, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	return s
}

// send sends a short text on a channel, in one masked frame whose mask is zero.
func (s *socket) send(channel byte, text string) {
	s.t.Helper()
	_, err := s.conn.Write(append([]byte{0x82, 0x80 | byte(1+len(text)), 0, 0, 0, 0, channel}, text...))
	require.NoError(s.t, err)
}

// receive reads frames until one with something on the channel comes. At the end of
// the stream it returns false.
func (s *socket) receive(channel byte) (string, bool) {
	s.t.Helper()
	for {
		var head [2]byte
		if _, err := io.ReadFull(s.in, head[:]); err != nil {
			return "", false
		}
		size := uint16(head[1])
		if size == 126 {
			if err := binary.Read(s.in, binary.BigEndian, &size); err != nil {
				return "", false
			}
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(s.in, data); err != nil {
			return "", false
		}
		if head[0]&0xf == 8 { // it is closed
			return "", false
		}
		if len(data) > 1 && data[0] == channel {
			return string(data[1:]), true
		}
	}
}

// serveStreams serves the streams of rt for the length of the test, or until stop.
func serveStreams(t *testing.T, rt *fake.Runtime) (stop func()) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- criserver.ServeStreams(ctx, rt, l) }()
	stop = func() {
		cancel()
		require.NoError(t, <-served)
	}
	client, _ := rt.Clients()
	require.NoError(t, rt.Until(t.Context(), func() bool {
		_, err := client.PortForward(t.Context(), &criv1.PortForwardRequest{PodSandboxId: "s1"})
		return status.Code(err) != codes.Unimplemented
	}))
	return stop
}

// exec answers the commands "print TEXT" and "exit CODE".
func exec(_ context.Context, cmd []string) (runtime.ExecResult, error) {
	if cmd[0] == "print" {
		return runtime.ExecResult{Output: []byte(cmd[1])}, nil
	}
	code, err := strconv.Atoi(cmd[1])
	return runtime.ExecResult{ExitCode: int32(code)}, err
}

// shell is what a test's container does with its streams.
func shell(ctx context.Context, s fake.Session) (int32, error) {
	if s.Command == nil {
		fmt.Fprint(s.Stdout, "attached")
		<-ctx.Done()
		return 0, nil
	}
	line := make([]byte, 100)
	n, err := s.Stdin.Read(line)
	if err != nil {
		return 1, err
	}
	size, _ := s.NextSize()
	fmt.Fprintf(s.Stdout, "%s got %s at %dx%d", strings.Join(s.Command, " "), line[:n], size.Width, size.Height)
	return 3, nil
}

func TestStreamsIntoContainers(t *testing.T) {
	rt := fake.New(fake.Options{
		Behavior: func(c fake.Container) fake.Behavior {
			if c.Name == "c1" {
				return fake.Behavior{Session: shell}
			}
			return fake.Behavior{Exec: exec}
		},
		PortForward: func(_ context.Context, pod runtime.PodRef, port int32, stream io.ReadWriteCloser) error {
			line := make([]byte, 100)
			n, err := stream.Read(line)
			fmt.Fprintf(stream, "%s:%d got %s", pod.Name, port, line[:n])
			return err
		},
	})
	require.NoError(t, rt.Seed(fake.Pods(1, 2)...))
	c, _ := rt.Clients()
	ctx := t.Context()
	_, err := c.Exec(ctx, &criv1.ExecRequest{ContainerId: "c2", Cmd: []string{"id"}, Stdout: true})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	require.ErrorContains(t, err, "ServeStreams")
	defer serveStreams(t, rt)()
	plain, session := rt.Instances(fake.Target{})[0].ID.ID, rt.Instances(fake.Target{})[1].ID.ID

	t.Run("a command that Exec answers", func(t *testing.T) {
		resp, err := c.Exec(ctx, &criv1.ExecRequest{ContainerId: plain, Cmd: []string{"print", "hello"},
			Stdout: true, Stderr: true})
		require.NoError(t, err)
		s := dial(t, resp.Url)
		out, _ := s.receive(1)
		assert.Equal(t, "hello", out)
		end, _ := s.receive(3)
		assert.Contains(t, end, `"status":"Success"`)
	})
	t.Run("its exit code", func(t *testing.T) {
		resp, err := c.Exec(ctx, &criv1.ExecRequest{ContainerId: plain, Cmd: []string{"exit", "42"}, Stdout: true})
		require.NoError(t, err)
		end, _ := dial(t, resp.Url).receive(3)
		assert.Contains(t, end, `"message":"42"`)
	})
	t.Run("a session", func(t *testing.T) {
		resp, err := c.Exec(ctx, &criv1.ExecRequest{ContainerId: session, Cmd: []string{"sh", "-i"}, Stdin: true,
			Stdout: true, Tty: true})
		require.NoError(t, err)
		s := dial(t, resp.Url)
		s.send(0, "ls")
		s.send(4, `{"Width":80,"Height":25}`)
		out, _ := s.receive(1)
		assert.Equal(t, "sh -i got ls at 80x25", out)
		end, _ := s.receive(3)
		assert.Contains(t, end, `"message":"3"`)
	})
	t.Run("ports", func(t *testing.T) {
		resp, err := c.PortForward(ctx, &criv1.PortForwardRequest{PodSandboxId: "s1", Port: []int32{80}})
		require.NoError(t, err)
		s := dial(t, resp.Url)
		s.send(0, "GET")
		port, _ := s.receive(0)
		assert.Equal(t, "\x50\x00", port, "the protocol begins with the port")
		out, _ := s.receive(0)
		assert.Equal(t, "pod-0:80 got GET", out)
	})
	t.Run("attached until the container ends", func(t *testing.T) {
		resp, err := c.Attach(ctx, &criv1.AttachRequest{ContainerId: session, Stdout: true})
		require.NoError(t, err)
		silent, err := c.Attach(ctx, &criv1.AttachRequest{ContainerId: plain, Stdout: true})
		require.NoError(t, err)
		a, b := dial(t, resp.Url), dial(t, silent.Url)
		out, _ := a.receive(1)
		assert.Equal(t, "attached", out)
		rt.Exit(fake.Target{}, 0)
		for _, s := range []*socket{a, b} {
			_, more := s.receive(1)
			assert.False(t, more)
		}
		_, err = c.Exec(ctx, &criv1.ExecRequest{ContainerId: session, Cmd: []string{"id"}, Stdout: true})
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		_, err = c.Attach(ctx, &criv1.AttachRequest{ContainerId: "nobody", Stdout: true})
		require.Equal(t, codes.NotFound, status.Code(err))
	})
}

func TestTheEndOfServingEndsStreams(t *testing.T) {
	rt := fake.New(fake.Options{})
	require.NoError(t, rt.Seed(fake.Pods(1, 1)...))
	stop := serveStreams(t, rt)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.ErrorContains(t, criserver.ServeStreams(t.Context(), rt, l), "a server of streams already")

	c, _ := rt.Clients()
	attach, err := c.Attach(t.Context(), &criv1.AttachRequest{ContainerId: "c2", Stdout: true})
	require.NoError(t, err)
	forward, err := c.PortForward(t.Context(), &criv1.PortForwardRequest{PodSandboxId: "s1", Port: []int32{80}})
	require.NoError(t, err)
	attached, forwarded := dial(t, attach.Url), dial(t, forward.Url)
	_, _ = forwarded.receive(1) // the port
	reason, _ := forwarded.receive(1)
	assert.Contains(t, reason, "nothing listens on port 80")
	stop()
	_, more := attached.receive(1)
	assert.False(t, more)
	_, err = c.Attach(t.Context(), &criv1.AttachRequest{ContainerId: "c2", Stdout: true})
	require.Equal(t, codes.Unimplemented, status.Code(err), "nobody serves them any more")
	rt.KillSandbox(fake.Target{})
	_, err = c.PortForward(t.Context(), &criv1.PortForwardRequest{PodSandboxId: "s1"})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
}
