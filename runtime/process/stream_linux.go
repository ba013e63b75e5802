package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// streamServer serves exec, attach and port-forward on a port of the loopback address. A
// request needs a token, which is valid once and for a minute.
type streamServer struct {
	streaming.Server
	http     *http.Server
	listener *trackedListener
	handlers sync.WaitGroup
}

// maxStreamConns is the maximum number of connections that are no streams yet.
const maxStreamConns = 100

func newStreamServer(s *Server) (*streamServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: l.Addr().String()}
	server, err := streaming.NewServer(config, &streamRuntime{s})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	ss := &streamServer{Server: server, listener: &trackedListener{Listener: l, conns: map[*trackedConn]struct{}{}}}
	ss.http = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    16 << 10, // 1 MB, the default, takes tens of megabytes when it is parsed
		// Every local user can connect. A stream, which has a token, does not count.
		ConnState: (&nodenet.ConnLimit{Max: maxStreamConns}).Changed,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ss.handlers.Add(1)
			defer ss.handlers.Done()
			if !supportsProtocol(r) {
				http.Error(w, "none of these WebSocket protocols is supported; v4.channel.k8s.io and SPDY are", http.StatusBadRequest)
				return
			}
			server.ServeHTTP(w, r)
		}),
		BaseContext: func(net.Listener) context.Context { return s.life },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			ctx, c.(*trackedConn).gone = context.WithCancel(ctx)
			return ctx
		},
	}
	return ss, nil
}

// supportsProtocol reports whether the streaming server supports one of the WebSocket protocols that
// a client offers, or the client offers none. The streaming server checks that only after
// it has used up the token, so a client that then falls back to SPDY, as client-go does
// after v5.channel.k8s.io, would fail.
func supportsProtocol(r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return true
	}
	offered := strings.Join(r.Header.Values("Sec-Websocket-Protocol"), ",")
	if offered == "" {
		return true
	}
	for protocol := range strings.SplitSeq(offered, ",") {
		switch strings.TrimSpace(protocol) {
		case "v4.channel.k8s.io", "v4.base64.channel.k8s.io":
			return true
		case "channel.k8s.io", "base64.channel.k8s.io":
			if !strings.HasPrefix(r.URL.Path, "/portforward/") {
				return true
			}
		}
	}
	return false
}

func (ss *streamServer) serve() error {
	if err := ss.http.Serve(ss.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// close ends all streams and waits for them. It may be called more than once.
func (ss *streamServer) close() {
	_ = ss.http.Close()
	_ = ss.listener.Close() // if serve was not called
	ss.listener.closeConns()
	ss.handlers.Wait()
}

// trackedListener keeps its connections, including those that handlers have hijacked from
// the HTTP server. For these the server does not cancel the context of the request when
// the client disconnects, so the connection does.
type trackedListener struct {
	net.Listener
	mu     sync.Mutex
	closed bool
	conns  map[*trackedConn]struct{}
}

type trackedConn struct {
	net.Conn
	l *trackedListener
	// gone ends the context of the connection's requests. It is set before the first read.
	gone context.CancelFunc
}

func (l *trackedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: c, l: l, gone: func() {}}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	l.conns[t] = struct{}{}
	return t, nil
}

func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.gone()
	}
	return n, err
}

func (c *trackedConn) Close() error {
	c.gone()
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

func (l *trackedListener) closeConns() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c := range l.conns {
		_ = c.Conn.Close()
	}
}

// Exec implements CRI. It returns the URL of the stream.
func (s *runtimeService) Exec(_ context.Context, req *criv1.ExecRequest) (*criv1.ExecResponse, error) {
	if len(req.GetCmd()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no command is given")
	}
	if _, err := s.running(req.GetContainerId()); err != nil {
		return nil, err
	}
	return s.streams.GetExec(req)
}

// Attach implements CRI. It returns the URL of the stream.
func (s *runtimeService) Attach(_ context.Context, req *criv1.AttachRequest) (*criv1.AttachResponse, error) {
	c, err := s.running(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.rec.Config.GetTty() != req.GetTty() {
		return nil, status.Errorf(codes.InvalidArgument, "%s: tty is %t, and the request has %t", c.about(), c.rec.Config.GetTty(), req.GetTty())
	}
	return s.streams.GetAttach(req)
}

// PortForward implements CRI. It returns the URL of the stream.
func (s *runtimeService) PortForward(_ context.Context, req *criv1.PortForwardRequest) (*criv1.PortForwardResponse, error) {
	b, err := s.sandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if b.state() != criv1.PodSandboxState_SANDBOX_READY {
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %s is stopped", b.rec.ID)
	}
	return s.streams.GetPortForward(req)
}

// streamRuntime implements the streams.
type streamRuntime struct{ s *Server }

var _ streaming.Runtime = (*streamRuntime)(nil)

// Exec implements [streaming.Runtime].
func (r *streamRuntime) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := r.s.running(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(r.s.life, cancel)
	defer stop()
	var code int
	if tty {
		code, err = runTTY(ctx, c, cmd, in, out, resize)
	} else {
		code, err = run(ctx, c, cmd, in, writerOf(out), writerOf(errOut))
	}
	if err == nil && code != 0 {
		return exec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
	}
	return err
}

// writerOf returns nil for a nil stream, not an interface that holds nil.
func writerOf(w io.WriteCloser) io.Writer {
	if w == nil {
		return nil
	}
	return w
}

// runTTY runs a command with a new terminal.
func runTTY(ctx context.Context, c *container, cmd []string, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) (int, error) {
	master, slave, err := supervise.OpenTTY()
	if err != nil {
		return 0, err
	}
	defer master.Close()
	e, err := execute(ctx, c, cmd, true, slave)
	_ = slave.Close()
	if err != nil {
		return 0, err
	}
	var output sync.WaitGroup
	if out != nil {
		output.Go(func() { _, _ = io.Copy(out, master) })
	}
	if in != nil {
		go func() { _, _ = io.Copy(master, in) }() // ends with the stream
	}
	resized := follow(ctx, master, resize)
	defer resized()
	code, err := e.wait(ctx)
	_ = master.SetReadDeadline(time.Now().Add(drainTimeout))
	output.Wait()
	return code, err
}

// follow sets the size of a terminal for each size that it receives, until stop is called.
func follow(ctx context.Context, tty *os.File, sizes <-chan remotecommand.TerminalSize) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case size, ok := <-sizes:
				if !ok {
					return
				}
				setSize(tty, size)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

func setSize(tty *os.File, size remotecommand.TerminalSize) {
	raw, err := tty.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
	})
}

// Attach implements [streaming.Runtime]. It returns when the container has ended or the
// client has disconnected.
func (r *streamRuntime) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := r.s.running(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(r.s.life, cancel)
	defer stop()
	conn, err := supervise.Dial(ctx, c.dir, supervisorPatience)
	if err != nil {
		return errors.Join(errEnded, err)
	}
	defer conn.Close()
	unhook := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer unhook()
	conn.SetDeadline(time.Now().Add(supervisorPatience)) // it may be stopped
	p := &pipes{}
	defer p.close()
	stdout, err := p.to(discardIfNil(out))
	if err != nil {
		return err
	}
	files := []*os.File{stdout}
	if !tty {
		stderr, err := p.to(discardIfNil(errOut))
		if err != nil {
			return err
		}
		files = append(files, stderr)
	}
	if err := conn.Send(supervise.Request{Op: supervise.OpAttach, Stdin: in != nil || tty}, files...); err != nil {
		return err
	}
	p.started()
	var resp supervise.Response
	input, err := conn.Receive(&resp)
	if err != nil || resp.Error != "" {
		supervise.CloseFiles(input)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errors.Join(errEnded, err, errors.New(resp.Error))
	}
	conn.SetDeadline(time.Time{})
	if len(input) == 1 {
		defer input[0].Close()
		if in != nil {
			go func() { // ends with the stream
				_, _ = io.Copy(input[0], in)
				if !tty {
					_ = input[0].Close() // with stdinOnce, the container reads the end of its input
				}
			}()
		}
		if tty {
			resized := follow(ctx, input[0], resize)
			defer resized()
		}
	}
	cut := context.AfterFunc(ctx, func() {
		for _, f := range p.ours { // a supervisor that is stopped does not close the other ends
			_ = f.SetReadDeadline(time.Now().Add(drainTimeout))
		}
	})
	defer cut()
	p.outputs.Wait() // until the container ends or the connection is closed
	return nil
}

// discardIfNil returns a writer for a stream that the client does not request.
func discardIfNil(w io.WriteCloser) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// PortForward implements [streaming.Runtime]. The ports of a pod are those of the host.
func (r *streamRuntime) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	if _, err := r.s.sandbox(id); err != nil {
		return err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("port %d of the host: %w", port, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(r.s.life, func() { _ = conn.Close() })
	defer stop()
	done := make(chan struct{}, 2) // one value of each direction
	go func() {
		_, _ = io.Copy(conn, stream)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		done <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(stream, conn)
		done <- struct{}{}
	}()
	// One direction may continue for a while after the other one has ended.
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(portForwardLinger):
	}
	return nil
}

// portForwardLinger is the time for which one direction of a forwarded connection may
// continue after the other one has ended.
const portForwardLinger = 10 * time.Second
