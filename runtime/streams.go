package runtime

import (
	"context"
	"io"
	"net/url"
)

// Streamer is an optional interface of a [Runtime], found with [Optional]: a runtime that
// serves streams in this process. Clients are connected to it with the protocols of the
// kubelet's API by package server/streams. A runtime whose streams another process serves
// is a [StreamLocator]. If a runtime is both, its Streamer is used.
//
// The methods return when the session has ended, and soon after ctx has ended; they end
// what they have started. A method does not use the streams after it has returned, except
// that a Read of Stdin that is under way may go on until the connection is closed.
type Streamer interface {
	// ExecStream runs the command in the running container, without a shell, with the
	// streams of a client. It returns the exit code when the command has ended. When ctx
	// ends, because the client has disconnected or the agent stops, the command is killed.
	// The error wraps [ErrNotFound] if there is no such container.
	ExecStream(ctx context.Context, id ContainerID, cmd []string, streams Streams) (exitCode int32, err error)
	// AttachStream connects the streams of a client with those of the main process of the
	// running container, until that ends or ctx ends. The process goes on when the client
	// disconnects. The error wraps [ErrNotFound] if there is no such container.
	AttachStream(ctx context.Context, id ContainerID, streams Streams) error
	// ForwardPort connects to a TCP port of the pod with that sandbox and copies in both
	// directions until both have ended or ctx ends. The first call of conn.Close ends the
	// direction to the client only: Read then still returns what the client sends.
	ForwardPort(ctx context.Context, sandboxID string, port int32, conn io.ReadWriteCloser) error
}

// Streams are the streams of a client.
type Streams struct {
	// Stdin, Stdout and Stderr are nil if the client does not request them. With a terminal,
	// Stderr is nil.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// TTY means that the process of an exec gets a terminal, or that the container of an
	// attach has one.
	TTY bool
	// Sizes receives the size of the client's terminal, at the start and after each change,
	// and is closed when no more can come. It need not be read. nil without a terminal.
	Sizes <-chan TerminalSize
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize = struct{ Width, Height uint16 }

// StreamLocator is an optional interface of a [Runtime], found with [Optional]: a runtime
// whose streams another process serves over HTTP, with the protocols of CRI (SPDY/3.1 with
// v4.channel.k8s.io or portforward.k8s.io, and WebSocket with v4.channel.k8s.io). Each
// method returns the http or https URL of one session, which is valid for a short time. The
// URL is a secret, since it contains the permission to open the session.
//
// The errors wrap [ErrNotFound] if there is no such container or sandbox.
type StreamLocator interface {
	// ExecURL returns where to run a command in the running container.
	ExecURL(ctx context.Context, id ContainerID, cmd []string, opts StreamOptions) (*url.URL, error)
	// AttachURL returns where to attach to the main process of the running container. TTY in
	// opts is that of the container.
	AttachURL(ctx context.Context, id ContainerID, opts StreamOptions) (*url.URL, error)
	// PortForwardURL returns where to forward connections to ports of the pod with that
	// ready sandbox. The ports are only needed by clients that cannot name one with each
	// connection; others give none.
	PortForwardURL(ctx context.Context, sandboxID string, ports []int32) (*url.URL, error)
}

// StreamOptions say which streams a client requests. At least one of the three is true, and
// not both of TTY and Stderr.
type StreamOptions struct{ Stdin, Stdout, Stderr, TTY bool }
