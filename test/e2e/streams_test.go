package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kubeletkit/kubeletkit/runtime/process"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// These tests have the streams of the embedded runtime used by the clients of
// client-go, which are those of kubectl. The runtime is in this process.

// streamNode is an embedded runtime with one sandbox.
type streamNode struct {
	*Client
	sandbox string
	config  *cri.PodSandboxConfig
}

func newStreamNode(t *testing.T) *streamNode {
	t.Helper()
	dir, err := os.MkdirTemp("", "kk") // short, for the sockets in it
	require.NoError(t, err)
	ctx := context.Background()
	server, err := process.Open(ctx, process.Options{Dir: dir})
	require.NoError(t, err)
	client, err := Dial(server.Endpoint())
	require.NoError(t, err)
	n := &streamNode{Client: client, config: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "u"}, LogDirectory: dir + "/logs",
	}}
	t.Cleanup(func() {
		assert.NoError(t, n.RemoveAll())
		assert.NoError(t, n.Close())
		assert.NoError(t, server.Close())
		assert.NoError(t, os.RemoveAll(dir))
	})
	resp, err := n.Runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: n.config})
	require.NoError(t, err)
	n.sandbox = resp.PodSandboxId
	return n
}

// run starts a container that runs a script.
func (n *streamNode) run(t *testing.T, config *cri.ContainerConfig, script string) string {
	t.Helper()
	config.Metadata = &cri.ContainerMetadata{Name: strings.ReplaceAll(t.Name(), "/", "-")}
	config.Image, config.Linux = &cri.ImageSpec{Image: "host"}, &cri.LinuxContainerConfig{}
	config.Command = []string{"sh", "-c", script}
	created, err := n.Runtime.CreateContainer(t.Context(), &cri.CreateContainerRequest{PodSandboxId: n.sandbox,
		Config: config, SandboxConfig: n.config})
	require.NoError(t, err)
	_, err = n.Runtime.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: created.ContainerId})
	require.NoError(t, err)
	return created.ContainerId
}

// execIn returns an executor for a command in the container.
func (n *streamNode) execIn(t *testing.T, connect connector, id string, o remotecommand.StreamOptions,
	cmd ...string) remotecommand.Executor {
	t.Helper()
	resp, err := n.Runtime.Exec(t.Context(), &cri.ExecRequest{
		ContainerId: id, Cmd: cmd, Tty: o.Tty, Stdin: o.Stdin != nil, Stdout: o.Stdout != nil, Stderr: o.Stderr != nil,
	})
	require.NoError(t, err)
	return connect(t, resp.Url)
}

// attachTo returns an executor for an attachment to the container.
func (n *streamNode) attachTo(t *testing.T, connect connector, id string,
	o remotecommand.StreamOptions) remotecommand.Executor {
	t.Helper()
	resp, err := n.Runtime.Attach(t.Context(), &cri.AttachRequest{
		ContainerId: id, Tty: o.Tty, Stdin: o.Stdin != nil, Stdout: o.Stdout != nil, Stderr: o.Stderr != nil,
	})
	require.NoError(t, err)
	return connect(t, resp.Url)
}

// connector makes an executor of client-go for a URL of the runtime.
type connector func(t *testing.T, address string) remotecommand.Executor

func spdyExecutor(t *testing.T, address string) remotecommand.Executor {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	e, err := remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
	require.NoError(t, err)
	return e
}

func webSocketExecutor(t *testing.T, address string) remotecommand.Executor {
	t.Helper()
	e, err := remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{}, http.MethodGet, address,
		"v4.channel.k8s.io")
	require.NoError(t, err)
	return e
}

// fallbackExecutor is kubectl's: the newest WebSocket protocol, which container
// runtimes do not speak, and then SPDY, to the same URL.
func fallbackExecutor(t *testing.T, address string) remotecommand.Executor {
	t.Helper()
	first, err := remotecommand.NewWebSocketExecutor(&rest.Config{}, http.MethodGet, address)
	require.NoError(t, err)
	e, err := remotecommand.NewFallbackExecutor(first, spdyExecutor(t, address), httpstream.IsUpgradeFailure)
	require.NoError(t, err)
	return e
}

// connectors are all of them. Over WebSocket the end of an input is not told before
// protocol version 5.
var connectors = map[string]struct {
	connect  connector
	inputEnd bool
}{"SPDY": {spdyExecutor, true}, "WebSocket": {webSocketExecutor, false}, "Fallback": {fallbackExecutor, true}}

// screen is what a stream shows.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// shows waits until the text is there.
func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	Eventually(t, within, "the stream shows "+text, func() error {
		if got := s.String(); !strings.Contains(got, text) {
			return fmt.Errorf("it shows %q", got)
		}
		return nil
	})
}

// sizes are the sizes that a terminal gets, one after the other.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

// echoesSizes is a script that tells the size of its terminal after each line that
// is typed, until "end".
const echoesSizes = "test -t 0 && test -t 1 || exit 9; while read x; do echo got $x at $(stty size); [ $x != end ] " +
	"|| exit 3; done"

// typeInto uses a terminal in which echoesSizes runs, changes its size, and returns
// what its stream ends with.
func typeInto(t *testing.T, open func(remotecommand.StreamOptions) remotecommand.Executor) error {
	t.Helper()
	in, keys := io.Pipe()
	queue := make(sizes, 1)
	defer close(queue)
	var out screen
	o := remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true, TerminalSizeQueue: queue}
	e := open(o)
	ended := make(chan error, 1) // one value, of the one goroutine
	go func() {
		err := e.StreamWithContext(t.Context(), o)
		in.Close() // nobody takes what is typed any more
		ended <- err
	}()
	for _, size := range []remotecommand.TerminalSize{{Width: 101, Height: 41}, {Width: 55, Height: 22}} {
		queue <- size
		want := fmt.Sprintf("at %d %d", size.Height, size.Width)
		Eventually(t, within, "the new size", func() error {
			if _, err := io.WriteString(keys, "word\n"); err != nil {
				return err
			}
			if got := out.String(); !strings.Contains(got, want) {
				return fmt.Errorf("not %q in %q", want, got)
			}
			return nil
		})
	}
	_, err := io.WriteString(keys, "end\n")
	require.NoError(t, err)
	err = <-ended
	assert.Contains(t, out.String(), "got word at ")
	assert.Contains(t, out.String(), "got end at 22 55")
	return err
}

func TestStreamsExec(t *testing.T) {
	t.Parallel()
	n := newStreamNode(t)
	id := n.run(t, &cri.ContainerConfig{}, "exec sleep 1000")
	for name, c := range connectors {
		t.Run(name, func(t *testing.T) {
			t.Run("Output", func(t *testing.T) {
				var out, errOut screen
				o := remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}
				err := n.execIn(t, c.connect, id, o, "sh", "-c",
					"echo to stdout; echo to stderr >&2; exit 5").StreamWithContext(t.Context(), o)
				var exit clientexec.CodeExitError
				require.ErrorAs(t, err, &exit)
				assert.Equal(t, 5, exit.Code)
				assert.Equal(t, "to stdout\n", out.String())
				assert.Equal(t, "to stderr\n", errOut.String())
			})
			t.Run("Signal", func(t *testing.T) {
				var out screen
				o := remotecommand.StreamOptions{Stdout: &out}
				err := n.execIn(t, c.connect, id, o, "sh", "-c", "kill -KILL $$").StreamWithContext(t.Context(), o)
				var exit clientexec.CodeExitError
				require.ErrorAs(t, err, &exit)
				assert.Equal(t, 137, exit.Code)
			})
			t.Run("NoCommand", func(t *testing.T) {
				var out screen
				o := remotecommand.StreamOptions{Stdout: &out}
				err := n.execIn(t, c.connect, id, o, "no-such-command").StreamWithContext(t.Context(), o)
				assert.ErrorContains(t, err, "is not on this host")
			})
			t.Run("Input", func(t *testing.T) {
				data := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16) // 1 MiB, many times what a pipe holds
				cmd := []string{"sh", "-c", "cat; echo end >&2"}
				if !c.inputEnd {
					cmd[2] = fmt.Sprintf("head -c %d; echo end >&2", len(data))
				}
				var out, errOut screen
				o := remotecommand.StreamOptions{Stdin: bytes.NewReader(data), Stdout: &out, Stderr: &errOut}
				require.NoError(t, n.execIn(t, c.connect, id, o, cmd...).StreamWithContext(t.Context(), o))
				assert.Equal(t, sha256.Sum256(data), sha256.Sum256([]byte(out.String())),
					"%d bytes came back", len(out.String()))
				assert.Equal(t, "end\n", errOut.String())
			})
			t.Run("Terminal", func(t *testing.T) {
				var exit clientexec.CodeExitError
				require.ErrorAs(t, typeInto(t, func(o remotecommand.StreamOptions) remotecommand.Executor {
					return n.execIn(t, c.connect, id, o, "sh", "-c", echoesSizes)
				}), &exit)
				assert.Equal(t, 3, exit.Code)
			})
			t.Run("Cancelled", func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var out screen
				o := remotecommand.StreamOptions{Stdout: &out}
				e := n.execIn(t, c.connect, id, o, "sh", "-c", "echo pid $$; exec sleep 1000")
				ended := make(chan error, 1) // one value, of the one goroutine
				go func() { ended <- e.StreamWithContext(ctx, o) }()
				out.shows(t, "\n")
				var pid int
				_, err := fmt.Sscanf(out.String(), "pid %d", &pid)
				require.NoError(t, err)
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
				Eventually(t, within, "the command ended", func() error {
					if _, alive := bornOf(pid); alive {
						return fmt.Errorf("%d goes on", pid)
					}
					return nil
				})
			})
		})
	}
}

func TestStreamsAttach(t *testing.T) {
	t.Parallel()
	n := newStreamNode(t)
	for name, c := range connectors {
		t.Run(name, func(t *testing.T) {
			t.Run("Streams", func(t *testing.T) {
				id := n.run(t, &cri.ContainerConfig{Stdin: true}, "while read x; do echo got $x; echo also $x >&2; "+
					"[ $x != end ] || exit 4; done")
				in, write := io.Pipe()
				defer write.Close()
				var out, errOut screen
				o := remotecommand.StreamOptions{Stdin: in, Stdout: &out, Stderr: &errOut}
				ended := make(chan error, 1) // one value, of the one goroutine
				go func() { ended <- n.attachTo(t, c.connect, id, o).StreamWithContext(t.Context(), o) }()
				_, err := io.WriteString(write, "one\ntwo\n")
				require.NoError(t, err)
				out.shows(t, "got one\ngot two\n")
				// A second one that only looks.
				var look screen
				watch := remotecommand.StreamOptions{Stdout: &look}
				looked := make(chan error, 1) // one value, of the one goroutine
				go func() { looked <- n.attachTo(t, c.connect, id, watch).StreamWithContext(t.Context(), watch) }()
				for !strings.Contains(look.String(), "got more") { // until it is attached
					_, err = io.WriteString(write, "more\n")
					require.NoError(t, err)
					time.Sleep(10 * time.Millisecond)
				}
				_, err = io.WriteString(write, "end\n")
				require.NoError(t, err)
				require.NoError(t, <-ended)
				require.NoError(t, <-looked)
				assert.True(t, strings.HasSuffix(out.String(), "got end\n"), out.String())
				assert.True(t, strings.HasSuffix(look.String(), "got end\n"), look.String())
				assert.True(t, strings.HasSuffix(errOut.String(), "also end\n"), errOut.String())
				n.exited(t, id, 4)
			})
			if c.inputEnd {
				t.Run("InputOnce", func(t *testing.T) {
					id := n.run(t, &cri.ContainerConfig{Stdin: true, StdinOnce: true}, "cat; exit 6")
					var out screen
					o := remotecommand.StreamOptions{Stdin: strings.NewReader("all there is\n"), Stdout: &out}
					require.NoError(t, n.attachTo(t, c.connect, id, o).StreamWithContext(t.Context(), o))
					assert.Equal(t, "all there is\n", out.String())
					n.exited(t, id, 6)
				})
			}
			t.Run("Gone", func(t *testing.T) {
				id := n.run(t, &cri.ContainerConfig{Stdin: true, StdinOnce: true}, "echo up; cat; exit 8")
				in, write := io.Pipe()
				defer write.Close()
				var out screen
				o := remotecommand.StreamOptions{Stdin: in, Stdout: &out}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1) // one value, of the one goroutine
				go func() { ended <- n.attachTo(t, c.connect, id, o).StreamWithContext(ctx, o) }()
				_, err := io.WriteString(write, "word\n")
				require.NoError(t, err)
				out.shows(t, "word")
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
				n.exited(t, id, 8) // its input has ended
			})
			t.Run("Terminal", func(t *testing.T) {
				id := n.run(t, &cri.ContainerConfig{Stdin: true, Tty: true}, echoesSizes)
				require.NoError(t, typeInto(t, func(o remotecommand.StreamOptions) remotecommand.Executor {
					return n.attachTo(t, c.connect, id, o)
				}))
				n.exited(t, id, 3)
			})
		})
	}
}

// exited waits until the container has ended with the code.
func (n *streamNode) exited(t *testing.T, id string, code int32) {
	t.Helper()
	Eventually(t, within, "container ended", func() error {
		resp, err := n.Runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return err
		}
		if st := resp.Status; st.State != cri.ContainerState_CONTAINER_EXITED || st.ExitCode != code {
			return fmt.Errorf("%v with code %d", st.State, st.ExitCode)
		}
		return nil
	})
}

func TestStreamsPortForward(t *testing.T) {
	t.Parallel()
	n := newStreamNode(t)
	// It answers when the question has ended.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				question, _ := io.ReadAll(c)
				fmt.Fprintf(c, "%x", sha256.Sum256(question))
			}()
		}
	}()
	overSPDY := func(t *testing.T, u *url.URL) httpstream.Dialer {
		transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
		require.NoError(t, err)
		return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	}
	dialers := map[string]func(*testing.T, *url.URL) httpstream.Dialer{
		"SPDY": overSPDY,
		"Fallback": func(t *testing.T, u *url.URL) httpstream.Dialer {
			tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, &rest.Config{})
			require.NoError(t, err)
			return portforward.NewFallbackDialerForStreaming(tunnel, overSPDY(t, u), httpstream.IsUpgradeFailure)
		},
	}
	// A port that nobody listens to, and that no listener is given which asks for any: the
	// forwarder would else be led to itself.
	const closed = 1
	port := func(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
	for name, dial := range dialers {
		t.Run(name, func(t *testing.T) {
			resp, err := n.Runtime.PortForward(t.Context(), &cri.PortForwardRequest{PodSandboxId: n.sandbox})
			require.NoError(t, err)
			u, err := url.Parse(resp.Url)
			require.NoError(t, err)
			ready, stop := make(chan struct{}), make(chan struct{})
			defer close(stop)
			forwarder, err := portforward.NewForStreaming(dial(t, u), []string{fmt.Sprintf("0:%d", port(l)),
				fmt.Sprintf("0:%d", closed)}, stop, ready, io.Discard, io.Discard)
			require.NoError(t, err)
			ended := make(chan error, 1) // one value, of the one goroutine
			go func() { ended <- forwarder.ForwardPorts() }()
			select {
			case <-ready:
			case err := <-ended:
				require.NoError(t, err)
			}
			ports, err := forwarder.GetPorts()
			require.NoError(t, err)

			var asked sync.WaitGroup
			for i := range 5 {
				asked.Go(func() {
					conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
					if !assert.NoError(t, err) {
						return
					}
					defer conn.Close()
					question := bytes.Repeat([]byte{byte(i)}, 1<<20)
					_, err = conn.Write(question)
					assert.NoError(t, err)
					assert.NoError(t, conn.(*net.TCPConn).CloseWrite())
					answer, err := io.ReadAll(conn)
					assert.NoError(t, err)
					assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256(question)), string(answer))
				})
			}
			asked.Wait()

			// This client gives all up when a port has an error.
			broken, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[1].Local))
			require.NoError(t, err)
			defer broken.Close()
			_, err = io.ReadAll(broken)
			assert.NoError(t, err)
			require.ErrorIs(t, <-ended, portforward.ErrLostConnectionToPod)
		})
	}
}
