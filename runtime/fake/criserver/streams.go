package criserver

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

	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// ServeStreams serves the streams of exec, attach and port-forward of the runtime on
// a listener until ctx ends; then it returns nil, with all streams ended and the
// listener closed. A runtime has one server of streams at a time; without one, the
// three calls answer Unimplemented.
func ServeStreams(ctx context.Context, rt *fake.Runtime, l net.Listener) error {
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: l.Addr().String()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, err := streaming.NewServer(config, &streams{rt: rt, ctx: ctx})
	var remove func()
	if err == nil {
		remove, err = rt.SetStreamServer(server)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("serving streams on %s: %w", l.Addr(), err), l.Close())
	}
	defer remove()

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

// connections are the open connections of an HTTP server. Unlike the server it also
// has those that were hijacked, as all streams are.
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

// streams passes streams on to the runtime.
type streams struct {
	rt *fake.Runtime
	// ctx ends with the server. The context of a request does not: its connection is
	// hijacked.
	ctx context.Context
}

var _ streaming.Runtime = (*streams)(nil)

// Exec implements [streaming.Runtime].
func (s *streams) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	code, err := s.rt.RunSession(ctx, id, session(cmd, in, out, errOut, tty, resize))
	if err == nil && code != 0 {
		err = exec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: int(code)}
	}
	return err
}

// Attach implements [streaming.Runtime].
func (s *streams) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	_, err := s.rt.RunSession(ctx, id, session(nil, in, out, errOut, tty, resize))
	return err
}

// PortForward implements [streaming.Runtime].
func (s *streams) PortForward(ctx context.Context, sandboxID string, port int32, stream io.ReadWriteCloser) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	return s.rt.ForwardPort(ctx, sandboxID, port, stream)
}

// within returns a context that also ends with the server.
func (s *streams) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

func session(cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize) fake.Session {
	s := fake.Session{Command: cmd, TTY: tty, Stdin: in}
	// A nil WriteCloser in a Writer would not be nil.
	if out != nil {
		s.Stdout = out
	}
	if errOut != nil {
		s.Stderr = errOut
	}
	if resize != nil {
		s.NextSize = func() (fake.TerminalSize, bool) {
			size, ok := <-resize
			return fake.TerminalSize{Width: size.Width, Height: size.Height}, ok
		}
	}
	return s
}
