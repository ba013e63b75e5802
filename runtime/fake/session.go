package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"
)

// Session is a client's stream into a container: of a command, or of the container
// itself.
type Session struct {
	// Command that is run; nil for a client that attaches.
	Command []string
	TTY     bool
	// Stdin, Stdout and Stderr are nil if the client did not ask for them.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Resize has the sizes of the client's terminal.
	Resize <-chan remotecommand.TerminalSize
}

// ServeStreams serves exec, attach and port-forward on a listener until ctx ends; then
// it returns nil, with all streams ended and the listener closed. While nobody serves
// them, and only one can at a time, these calls answer Unimplemented.
func (r *Runtime) ServeStreams(ctx context.Context, l net.Listener) error {
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: l.Addr().String()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, err := streaming.NewServer(config, &streams{s: r.s, ctx: ctx})
	if err == nil {
		err = r.s.setStreams(server)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("fake runtime: serving streams on %s: %w", l.Addr(), err), l.Close())
	}
	defer func() { _ = r.s.setStreams(nil) }()

	var handlers sync.WaitGroup
	var conns connections
	web := &http.Server{
		ReadHeaderTimeout: 30 * time.Second,
		ConnState:         conns.note,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			handlers.Add(1)
			defer handlers.Done()
			server.ServeHTTP(w, req)
		}),
	}
	var closing sync.WaitGroup
	closing.Go(func() {
		<-ctx.Done()
		_ = web.Close()
		conns.close()
	})
	err = web.Serve(l)
	if ctx.Err() != nil {
		err = nil
	} else {
		err = fmt.Errorf("fake runtime: serving streams on %s: %w", l.Addr(), err)
	}
	cancel()
	closing.Wait()
	handlers.Wait()
	return err
}

// setStreams makes a server the one that hands out addresses; nil is none.
func (s *service) setStreams(server streaming.Server) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if server != nil && s.streams != nil {
		return errors.New("they are served elsewhere already")
	}
	s.streams = server
	return nil
}

// connections are those that an HTTP server has, also those that were taken out of
// its hands.
type connections struct {
	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		_ = conn.Close()
	case state == http.StateNew:
		if c.open == nil {
			c.open = map[net.Conn]struct{}{}
		}
		c.open[conn] = struct{}{}
	case state == http.StateClosed:
		delete(c.open, conn)
	}
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn := range c.open {
		_ = conn.Close()
	}
}

// address has the server of streams hand out an address.
func address[Req, Resp any](s *service, get func(streaming.Server, Req) (Resp, error), req Req) (Resp, error) {
	s.mu.Lock()
	server := s.streams
	s.mu.Unlock()
	if server == nil {
		var none Resp
		return none, status.Error(codes.Unimplemented, "the fake runtime serves no streams; see Runtime.ServeStreams")
	}
	return get(server, req)
}

// Exec answers with the address of a stream.
func (s *runtimeServer) Exec(_ context.Context, req *criv1.ExecRequest) (*criv1.ExecResponse, error) {
	if _, err := s.s.running(req.GetContainerId()); err != nil {
		return nil, err
	}
	return address(s.s, streaming.Server.GetExec, req)
}

// Attach answers with the address of a stream.
func (s *runtimeServer) Attach(_ context.Context, req *criv1.AttachRequest) (*criv1.AttachResponse, error) {
	if _, err := s.s.running(req.GetContainerId()); err != nil {
		return nil, err
	}
	return address(s.s, streaming.Server.GetAttach, req)
}

// PortForward answers with the address of a stream.
func (s *runtimeServer) PortForward(_ context.Context, req *criv1.PortForwardRequest) (*criv1.PortForwardResponse, error) {
	if _, err := s.s.readySandbox(req.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return address(s.s, streaming.Server.GetPortForward, req)
}

// streams are the pods' ends of the streams.
type streams struct {
	s *service
	// ctx ends with the server: that of a request does not when its connection is taken
	// over.
	ctx context.Context
}

var _ streaming.Runtime = (*streams)(nil)

// Exec implements [streaming.Runtime].
func (st *streams) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := st.s.running(id)
	if err != nil {
		return err
	}
	ctx, cancel := st.within(ctx, c.done)
	defer cancel()
	session := Session{Command: cmd, TTY: tty, Stdin: in, Stdout: writerOf(out), Stderr: writerOf(errOut), Resize: resize}
	var code int32
	if c.behavior.Session != nil {
		code, err = c.behavior.Session(ctx, session)
	} else if res, failed := c.exec(ctx, cmd); failed != nil {
		err = failed
	} else {
		code = res.ExitCode
		if session.Stdout != nil {
			_, err = session.Stdout.Write(res.Output)
		}
	}
	if err == nil && code != 0 {
		err = exec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: int(code)}
	}
	return err
}

// Attach implements [streaming.Runtime].
func (st *streams) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := st.s.running(id)
	if err != nil {
		return err
	}
	ctx, cancel := st.within(ctx, c.done)
	defer cancel()
	if c.behavior.Session == nil {
		<-ctx.Done()
		return nil
	}
	_, err = c.behavior.Session(ctx, Session{TTY: tty, Stdin: in, Stdout: writerOf(out), Stderr: writerOf(errOut), Resize: resize})
	return err
}

// PortForward implements [streaming.Runtime].
func (st *streams) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	sb, err := st.s.readySandbox(id)
	if err != nil {
		return err
	}
	if st.s.opts.PortForward == nil {
		return fmt.Errorf("nothing listens on port %d of pod %s", port, sb.pod)
	}
	ctx, cancel := st.within(ctx, sb.lost)
	defer cancel()
	return st.s.opts.PortForward(ctx, sb.pod, port, stream)
}

// within returns a context that ends with the stream, with the server, and with what
// the stream is of.
func (st *streams) within(ctx context.Context, gone <-chan struct{}) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(st.ctx, cancel)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-gone:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() { stop(); cancel(); watch.Wait() }
}

// writerOf keeps a missing stream from becoming a writer that is not nil.
func writerOf(w io.WriteCloser) io.Writer {
	if w == nil {
		return nil
	}
	return w
}
