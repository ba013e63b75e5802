package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Session is a client's stream into a container: of a command, or of the main
// process of the container.
type Session struct {
	// Command to run; nil for a client that attaches.
	Command []string
	TTY     bool
	// Stdin, Stdout and Stderr are nil if the client did not request them.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// NextSize blocks until the client's terminal has a new size and returns it; ok is
	// false at the end of the stream. nil without a terminal.
	NextSize func() (size TerminalSize, ok bool)
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct{ Width, Height uint16 }

// streamServer hands out the addresses of streams. Package criserver has one.
type streamServer interface {
	GetExec(*criv1.ExecRequest) (*criv1.ExecResponse, error)
	GetAttach(*criv1.AttachRequest) (*criv1.AttachResponse, error)
	GetPortForward(*criv1.PortForwardRequest) (*criv1.PortForwardResponse, error)
}

// SetStreamServer makes the CRI calls Exec, Attach and PortForward answer with the
// addresses of a server, until remove is called. Without a server they answer
// Unimplemented. A second server is an error.
func (r *Runtime) SetStreamServer(server streamServer) (remove func(), err error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams != nil {
		return nil, errors.New("fake runtime: it has a server of streams already")
	}
	s.streams = server
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams = nil
	}), nil
}

// RunSession runs a session in the running container with that ID, as defined by its
// [Behavior], and returns the exit code of the command. The session ends with
// ctx and with the container. It is for servers of streams.
func (r *Runtime) RunSession(ctx context.Context, containerID string, session Session) (exitCode int32, err error) {
	c, err := r.s.running(containerID)
	if err != nil {
		return 0, err
	}
	ctx, cancel := until(ctx, c.done)
	defer cancel()
	switch {
	case c.behavior.Session != nil:
		return c.behavior.Session(ctx, session)
	case session.Command == nil:
		<-ctx.Done()
		return 0, nil
	}
	res, err := c.exec(ctx, session.Command)
	if err == nil && session.Stdout != nil {
		_, err = session.Stdout.Write(res.Output)
	}
	return res.ExitCode, err
}

// ForwardPort connects a stream to a port of the pod of a ready sandbox, see
// [Options].PortForward. It returns when the connection, ctx or the sandbox ends,
// and closes the stream. It is for servers of streams.
func (r *Runtime) ForwardPort(ctx context.Context, sandboxID string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	sb, err := r.s.readySandbox(sandboxID)
	if err != nil {
		return err
	}
	if r.s.opts.PortForward == nil {
		return fmt.Errorf("nothing listens on port %d of pod %s", port, sb.pod)
	}
	ctx, cancel := until(ctx, sb.lost)
	defer cancel()
	return r.s.opts.PortForward(ctx, sb.pod, port, stream)
}

// until returns a context that also ends when gone is closed. Its cancel function
// must be called.
func until(ctx context.Context, gone <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-gone:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(); watch.Wait() }
}

// address returns the address that the server of streams has for a request.
func address[Req, Resp any](s *service, get func(streamServer, Req) (Resp, error), req Req) (Resp, error) {
	s.mu.Lock()
	server := s.streams
	s.mu.Unlock()
	if server == nil {
		var none Resp
		return none, status.Error(codes.Unimplemented, "the fake runtime serves no streams; see criserver.ServeStreams")
	}
	return get(server, req)
}

// Exec answers with the address of a stream.
func (s *runtimeServer) Exec(_ context.Context, req *criv1.ExecRequest) (*criv1.ExecResponse, error) {
	if _, err := s.s.running(req.GetContainerId()); err != nil {
		return nil, err
	}
	return address(s.s, streamServer.GetExec, req)
}

// Attach answers with the address of a stream.
func (s *runtimeServer) Attach(_ context.Context, req *criv1.AttachRequest) (*criv1.AttachResponse, error) {
	if _, err := s.s.running(req.GetContainerId()); err != nil {
		return nil, err
	}
	return address(s.s, streamServer.GetAttach, req)
}

// PortForward answers with the address of a stream.
func (s *runtimeServer) PortForward(_ context.Context,
	req *criv1.PortForwardRequest) (*criv1.PortForwardResponse, error) {
	if _, err := s.s.readySandbox(req.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return address(s.s, streamServer.GetPortForward, req)
}
