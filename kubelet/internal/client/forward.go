package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	clientspdy "k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
)

// portForwardCommand is the command port-forward.
func portForwardCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "port-forward POD [LOCAL:]REMOTE...", Short: "forward ports of this machine to a pod",
		GroupID: groupContainers,
		Long: "REMOTE is the number or the name of a port of the pod. LOCAL is the same if it is not given; if it " +
			"is empty, as in :80, it is chosen.",
		Example: `  minikubelet port-forward web 8080:80
  minikubelet port-forward web http`,
	}, (*call).portForward, (*call).namespaceFlag, (*call).forwardFlags)
}

func (c *call) forwardFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.addresses, "address", []string{"localhost"}, "addresses to listen on")
}

// portForward listens on ports of this machine and forwards connections to ports of a pod.
func (c *call) portForward(ctx context.Context) error {
	if len(c.args) < 2 {
		return c.misused("want the name of one pod and its ports")
	}
	pod, err := c.podWithLogs(ctx, c.args[0], false)
	if err != nil {
		return err
	}
	var ports []string
	for _, port := range c.args[1:] {
		numbered, err := numberedPort(pod, port)
		if err != nil {
			return err
		}
		ports = append(ports, numbered)
	}
	rt, upgrader, err := c.client.upgrader()
	if err != nil {
		return err
	}
	path := "/portForward/" + url.PathEscape(pod.Namespace) + "/" + url.PathEscape(pod.Name) + "/" +
		url.PathEscape(string(pod.UID))
	messages := &forwardMessages{out: c.Out, errOut: c.Err}
	ctx = logr.NewContext(ctx,
		logr.FromSlogHandler(slog.NewTextHandler(messages.errors(), &slog.HandlerOptions{Level: slog.LevelError,
			ReplaceAttr: untimed})))
	dialer := forwardDialer{
		clientspdy.NewDialerForStreaming(upgrader, &http.Client{Transport: rt}, http.MethodPost,
			&url.URL{Scheme: "http", Host: "agent", Path: path}), messages,
	}
	ready := make(chan struct{})
	f, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, c.addresses, ports, ready,
		messages, messages.errors())
	if err != nil {
		return c.misused(err.Error())
	}
	ended := make(chan struct{})
	var named sync.WaitGroup
	named.Go(func() {
		select {
		case <-ready:
			forwarded, _ := f.GetPorts() // they are ready
			for _, port := range forwarded {
				c.nameTaken(ctx, messages, port.Local)
			}
		case <-ended:
		}
	})
	err = f.ForwardPorts()
	close(ended)
	named.Wait()
	if err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// nameTaken prints the addresses of localhost on which the port is taken. The library is content with one of them.
func (c *call) nameTaken(ctx context.Context, messages *forwardMessages, port uint16) {
	if !slices.Contains(c.addresses, "localhost") {
		return
	}
	for _, at := range []struct{ network, ip string }{{"tcp4", "127.0.0.1"}, {"tcp6", "::1"}} {
		address := net.JoinHostPort(at.ip, strconv.Itoa(int(port)))
		if messages.has("Forwarding from " + address + " ") {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, at.network, address)
		switch {
		case err == nil:
			_ = l.Close() // it is free by now
		case errors.Is(err, syscall.EADDRINUSE): // others mean that the machine has no such address
			fmt.Fprintf(messages.errors(), "Unable to listen on %s: the address is in use by another program. "+
				"Connections to it do not reach the pod.\n", address)
		}
	}
}

// untimed drops the time and the level of a line.
func untimed(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// forwardMessages prints what a session of port-forward reports, from any goroutine, and remembers the beginning.
type forwardMessages struct {
	mu          sync.Mutex
	out, errOut io.Writer
	begin       strings.Builder
}

// maxBegin is the number of bytes that are remembered: each port has two lines.
const maxBegin = 64 << 10

// Write implements [io.Writer].
func (m *forwardMessages) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.begin.Len() < maxBegin {
		m.begin.Write(b)
	}
	return m.out.Write(b)
}

// has reports whether the text was printed.
func (m *forwardMessages) has(text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Contains(m.begin.String(), text)
}

// errors returns a writer for errors.
func (m *forwardMessages) errors() io.Writer { return forwardErrors{m} }

type forwardErrors struct{ m *forwardMessages }

// Write implements [io.Writer].
func (e forwardErrors) Write(b []byte) (int, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	return e.m.errOut.Write(b)
}

// forwardDialer opens connections on which the error of one forwarded connection, such as that nothing listens on the
// port, is printed and does not end the others: the library would end the session.
type forwardDialer struct {
	httpstream.Dialer
	messages *forwardMessages
}

// Dial implements [httpstream.Dialer].
func (d forwardDialer) Dial(protocols ...string) (httpstream.Connection, string, error) {
	conn, protocol, err := d.Dialer.Dial(protocols...)
	if err != nil {
		return nil, "", err
	}
	return forwardConn{conn, d.messages}, protocol, nil
}

type forwardConn struct {
	httpstream.Connection
	messages *forwardMessages
}

// CreateStream implements [httpstream.Connection].
func (c forwardConn) CreateStream(headers http.Header) (httpstream.Stream, error) {
	kind, port := headers.Get(v1.StreamType), headers.Get(v1.PortHeader)
	stream, err := c.Connection.CreateStream(headers)
	if err != nil || kind != v1.StreamTypeError {
		return stream, err
	}
	return forwardErrorStream{stream, port, c.messages}, nil
}

// forwardErrorStream prints the error of a forwarded connection, and has no content.
type forwardErrorStream struct {
	httpstream.Stream
	port     string
	messages *forwardMessages
}

// maxForwardError is the number of bytes of an error that are printed.
const maxForwardError = 4 << 10

// Read implements [io.Reader].
func (s forwardErrorStream) Read([]byte) (int, error) {
	text, err := io.ReadAll(io.LimitReader(s.Stream, maxForwardError))
	if err == nil {
		_, err = io.Copy(io.Discard, s.Stream)
	}
	if len(text) > 0 {
		fmt.Fprintf(s.messages.errors(), "An error occurred forwarding to port %s: %s\n", s.port,
			terminal.Escape(terminal.OneLine(string(text))))
		return 0, io.EOF
	}
	return 0, cmp.Or(err, io.EOF)
}

// numberedPort returns LOCAL:REMOTE with a number for the remote port, which may be the name of
// a port of the pod.
func numberedPort(pod *v1.Pod, port string) (string, error) {
	local, remote, pair := strings.Cut(port, ":")
	if !pair {
		remote = local
	}
	if _, err := strconv.ParseUint(remote, 10, 16); err == nil {
		return port, nil
	}
	for _, container := range pod.Spec.Containers {
		for _, p := range container.Ports {
			if p.Name != remote || remote == "" {
				continue
			}
			number := strconv.Itoa(int(p.ContainerPort))
			if !pair {
				local = number
			}
			return local + ":" + number, nil
		}
	}
	return "", fmt.Errorf("pod %s/%s has no port %q: want a number or the name of a port, or LOCAL:REMOTE",
		pod.Namespace, pod.Name, remote)
}
