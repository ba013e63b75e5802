package streams_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	criremote "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/streams"
)

// node is an agent with the pod "default/web". Its container "main" runs, "done" has ended,
// "screen" has a terminal, and "new" was not started.
type node struct {
	server.Agent
	terminating bool
}

func (n node) Pods() []*v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}, {Name: "done"}, {Name: "screen", TTY: true},
			{Name: "new"}}},
	}
	if n.terminating {
		now := metav1.Now()
		pod.DeletionTimestamp = &now
	}
	stopped := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stopped", UID: "u2"}, Spec: pod.Spec}
	return []*v1.Pod{pod, stopped}
}

func (node) Terminating() []*v1.Pod { return nil }

func (node) TranslateUID(uid types.UID) types.UID { return uid }

func (node) RuntimeStatus(uid types.UID) (*runtime.PodStatus, bool) {
	if uid != "u1" {
		return nil, false
	}
	container := func(name string, state runtime.ContainerState) runtime.ContainerStatus {
		return runtime.ContainerStatus{ExitCode: 3, Container: runtime.Container{Name: name,
			ID: runtime.ContainerID{Type: "t", ID: name}, State: state}}
	}
	return &runtime.PodStatus{
		Sandboxes: []runtime.SandboxStatus{{Sandbox: runtime.Sandbox{ID: "s1", State: runtime.SandboxReady}}},
		Containers: []runtime.ContainerStatus{
			container("main", runtime.ContainerRunning), container("done", runtime.ContainerExited),
			container("screen", runtime.ContainerRunning),
		},
	}, true
}

// machine runs the commands of the tests in this process.
type machine struct {
	// running is the number of its calls that have not returned.
	running atomic.Int64
}

func (m *machine) ExecStream(ctx context.Context, id runtime.ContainerID, cmd []string,
	s runtime.Streams) (int32, error) {
	m.running.Add(1)
	defer m.running.Add(-1)
	switch cmd[0] {
	case "cat":
		_, err := io.Copy(s.Stdout, s.Stdin)
		return 0, err
	case "count": // what comes from stdin, and exits with 7
		n, err := io.Copy(io.Discard, s.Stdin)
		fmt.Fprintf(s.Stderr, "%d bytes", n)
		return 7, err
	case "pour": // ARG bytes to stdout
		n, err := strconv.ParseInt(cmd[1], 10, 64)
		if err == nil {
			_, err = io.Copy(s.Stdout, io.LimitReader(pattern{}, n))
		}
		return 0, err
	case "echo":
		_, err := fmt.Fprintf(s.Stdout, "%s in %s tty=%t", strings.Join(cmd[1:], " "), id.ID, s.TTY)
		return 0, err
	case "sizes": // prints ARG sizes of the terminal
		n, err := strconv.Atoi(cmd[1])
		for range n {
			size := <-s.Sizes
			fmt.Fprintf(s.Stdout, "%dx%d ", size.Width, size.Height)
		}
		return 0, err
	case "hang":
		fmt.Fprint(s.Stdout, "hanging")
		<-ctx.Done()
		return 0, ctx.Err()
	case "panic":
		panic("on purpose")
	default:
		return 0, errors.New("no such command")
	}
}

func (m *machine) AttachStream(ctx context.Context, id runtime.ContainerID, s runtime.Streams) error {
	m.running.Add(1)
	defer m.running.Add(-1)
	fmt.Fprintf(s.Stdout, "attached to %s tty=%t stderr=%t ", id.ID, s.TTY, s.Stderr != nil)
	if s.Stdin == nil {
		return nil
	}
	_, err := io.Copy(s.Stdout, s.Stdin)
	return err
}

// ForwardPort echoes on port 7, refuses port 9, sends a greeting on port 11 and ends, and neither reads
// nor writes on port 13.
func (m *machine) ForwardPort(ctx context.Context, sandbox string, port int32, conn io.ReadWriteCloser) error {
	m.running.Add(1)
	defer m.running.Add(-1)
	switch port {
	case 7:
		_, err := io.Copy(conn, conn)
		return err
	case 11:
		fmt.Fprintf(conn, "welcome to %s", sandbox)
		return nil
	case 13:
		<-ctx.Done()
		return ctx.Err()
	default:
		// It returns when the client has the reply to the stream. The server of a runtime would reset
		// the stream before that.
		_, _ = conn.Write(nil)
		return fmt.Errorf("connection to port %d refused", port)
	}
}

// pattern is an endless sequence of bytes.
type pattern struct{}

func (pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return len(b), nil
}

// slowly is the time in which a session begins when many do on a slow machine.
const slowly = 5 * time.Minute

// served is a runtime whose streams another server has, like that of a CRI runtime.
type served struct {
	m      *machine
	server streaming.Server
	http   *httptest.Server
	ctx    context.Context
	kill   func() // ends all sessions and connections
}

// calm is a connection that can be closed more than once. After an error of Close a goroutine of the
// library of SPDY waits for a second.
type calm struct{ *net.TCPConn }

func (c calm) Close() error {
	_ = c.TCPConn.Close()
	return nil
}

// calmly accepts calm connections.
type calmly struct{ net.Listener }

func (l calmly) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return calm{conn.(*net.TCPConn)}, nil
}

// serveElsewhere serves the streams of m with the server that CRI runtimes use.
func serveElsewhere(t testing.TB, m *machine) *served {
	s := &served{m: m}
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(context.Background())
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		req *http.Request) {
		s.server.ServeHTTP(w, req)
	}))
	s.http.Listener = calmly{s.http.Listener}
	var conns sync.Map
	s.http.Config.ConnState = func(c net.Conn, state http.ConnState) { conns.Store(c, true) }
	config := streaming.DefaultConfig
	config.StreamCreationTimeout = slowly
	config.BaseURL = &url.URL{Scheme: "http", Host: s.http.Listener.Addr().String()}
	var err error
	s.server, err = streaming.NewServer(config, s)
	require.NoError(t, err)
	s.http.Start()
	s.kill = func() {
		cancel()
		conns.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
	}
	t.Cleanup(func() { s.kill(); s.http.Close() })
	return s
}

func (s *served) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

func criStreams(in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan criremote.TerminalSize) runtime.Streams {
	s := runtime.Streams{Stdin: in, TTY: tty}
	if out != nil {
		s.Stdout = out
	}
	if errOut != nil {
		s.Stderr = errOut
	}
	if resize != nil {
		sizes := make(chan runtime.TerminalSize, 100)
		s.Sizes = sizes
		go func() {
			for size := range resize {
				sizes <- runtime.TerminalSize{Width: size.Width, Height: size.Height}
			}
		}()
	}
	return s
}

func (s *served) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan criremote.TerminalSize) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	code, err := s.m.ExecStream(ctx, runtime.ContainerID{ID: id}, cmd, criStreams(in, out, errOut, tty, resize))
	if err == nil && code != 0 {
		err = exec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: int(code)}
	}
	return err
}

func (s *served) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan criremote.TerminalSize) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	return s.m.AttachStream(ctx, runtime.ContainerID{ID: id}, criStreams(in, out, errOut, tty, resize))
}

func (s *served) PortForward(ctx context.Context, sandbox string, port int32, stream io.ReadWriteCloser) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	return s.m.ForwardPort(ctx, sandbox, port, stream)
}

// locator has the URLs of a served.
type locator struct{ s *served }

func (l locator) ExecURL(_ context.Context, id runtime.ContainerID, cmd []string,
	o runtime.StreamOptions) (*url.URL, error) {
	resp, err := l.s.server.GetExec(&criv1.ExecRequest{ContainerId: id.ID, Cmd: cmd, Stdin: o.Stdin, Stdout: o.Stdout,
		Stderr: o.Stderr, Tty: o.TTY})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

func (l locator) AttachURL(_ context.Context, id runtime.ContainerID, o runtime.StreamOptions) (*url.URL, error) {
	resp, err := l.s.server.GetAttach(&criv1.AttachRequest{ContainerId: id.ID, Stdin: o.Stdin, Stdout: o.Stdout,
		Stderr: o.Stderr, Tty: o.TTY})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

func (l locator) PortForwardURL(_ context.Context, sandbox string, ports []int32) (*url.URL, error) {
	resp, err := l.s.server.GetPortForward(&criv1.PortForwardRequest{PodSandboxId: sandbox, Port: ports})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

// world is a server of the streams of a machine.
type world struct {
	m    *machine
	h    *streams.Handlers
	http *httptest.Server
}

// newWorld serves the streams of a machine; local means that the runtime is in this process.
// At the end of the test nothing may be left behind.
func newWorld(t testing.TB, local bool, opts streams.Options) *world {
	t.Helper()
	files := openFiles(t)
	known := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		var err error
		for range 10 { // libraries wait a second for what has ended; each call waits too
			if err = goleak.Find(known, heartbeat); err == nil {
				break
			}
		}
		if err != nil {
			t.Errorf("left behind: %v", err)
		}
		if now := openFiles(t); len(now) > len(files) {
			t.Errorf("open files: %v before, %v after", files, now)
		}
	})
	w := &world{m: &machine{}}
	var rt any = w.m
	if !local {
		rt = locator{serveElsewhere(t, w.m)}
	}
	w.serve(t, rt, opts)
	return w
}

func (w *world) serve(t testing.TB, rt any, opts streams.Options) {
	h := streams.New(node{}, rt, opts)
	h.CheckEvery(50 * time.Millisecond)
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.Close()
		until(t, "the sessions end", func() bool { return h.Sessions() == 0 })
	})
	w.h, w.http = h, s
}

// until waits for a condition that something outside of the test makes true.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("after 2 minutes it is still not so that %s", what)
			return
		}
	}
}

// openFiles returns what the file descriptors of this process stand for.
func openFiles(t testing.TB) (files []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "/proc/") &&
			!strings.HasPrefix(to, "anon_inode") {
			files = append(files, to)
		}
	}
	return files
}

// url returns the URL of a path with the query.
func (w *world) url(t testing.TB, path string, query url.Values) *url.URL {
	u, err := url.Parse(w.http.URL + path + "?" + query.Encode())
	require.NoError(t, err)
	return u
}

// executor returns a client of exec or attach, by WebSocket or by SPDY.
func executor(t testing.TB, websocket bool, u *url.URL) remotecommand.Executor {
	t.Helper()
	config := &rest.Config{Host: u.Host}
	if websocket {
		e, err := remotecommand.NewWebSocketExecutor(config, "GET", u.String())
		require.NoError(t, err)
		return e
	}
	e, err := remotecommand.NewSPDYExecutor(config, "POST", u)
	require.NoError(t, err)
	return e
}

// result is what a client has received.
type result struct {
	out, err bytes.Buffer
	code     int
}

// run executes a command as kubectl does.
func (w *world) run(t testing.TB, websocket bool, stdin io.Reader, cmd ...string) (*result, error) {
	t.Helper()
	query := url.Values{"command": cmd, "output": {"1"}, "error": {"1"}}
	if stdin != nil {
		query.Set("input", "1")
	}
	r := &result{}
	err := executor(t, websocket, w.url(t, "/exec/default/web/main", query)).StreamWithContext(t.Context(),
		remotecommand.StreamOptions{
			Stdin: stdin, Stdout: &r.out, Stderr: &r.err,
		})
	if exit := (exec.CodeExitError{}); errors.As(err, &exit) {
		r.code, err = exit.Code, nil
	} else if coded, ok := err.(interface{ ExitStatus() int }); ok {
		r.code, err = coded.ExitStatus(), nil
	}
	return r, err
}

// raw makes a request on a connection of its own and returns the connection and the answer.
func (w *world) raw(t testing.TB, method, target string, header http.Header) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.http.URL, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	req, err := http.NewRequestWithContext(t.Context(), method, w.http.URL+target, nil)
	require.NoError(t, err)
	req.Header = header
	require.NoError(t, req.Write(conn))
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, req)
	require.NoError(t, err)
	return conn, in, resp
}
