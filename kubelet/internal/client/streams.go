package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// pingPeriod is the time between two pings of a session, as in kubectl: a session whose pings
// arrive is not idle.
const pingPeriod = 5 * time.Second

// Interrupted is the exit code of a command that was ended by a signal, as in shells.
const Interrupted = ExitCode(130)

// streams are what a session is connected with. Those that are nil are not requested.
type streams struct {
	in       io.Reader
	out, err io.Writer
	tty      bool
}

// upgrader returns the client of SPDY on the socket.
func (c *client) upgrader() (*spdy.SpdyRoundTripper, clientspdy.Upgrader, error) {
	rt, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: c.Transport,
		PingPeriod: pingPeriod})
	if err != nil {
		return nil, nil, err
	}
	return rt, clientspdy.NewUpgraderForStreaming(rt), nil
}

// stream opens a session of exec or attach and waits for its end. The error is an [ExitCode] if
// the command has failed. With a terminal, the terminal of this process, if it has one, is raw
// until then.
func (c *client) stream(ctx context.Context, path string, query url.Values, s streams) error {
	set := func(name string, on bool) {
		if on {
			query.Set(name, "1")
		}
	}
	set("input", s.in != nil)
	set("output", s.out != nil)
	set("error", s.err != nil && !s.tty)
	set("tty", s.tty)
	rt, upgrader, err := c.upgrader()
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewSPDYExecutorForTransports(rt, upgrader, http.MethodPost,
		&url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query.Encode()})
	if err != nil {
		return err
	}
	opts := remotecommand.StreamOptions{Stdin: s.in, Stdout: s.out, Stderr: s.err, Tty: s.tty}
	if s.tty {
		opts.Stderr = nil
		raw, err := makeRaw(ctx, s.in)
		if err != nil {
			return err
		}
		defer raw.restore()
		if raw.sizes != nil {
			opts.TerminalSizeQueue = raw
		}
	}
	err = executor.StreamWithContext(ctx, opts)
	if exit := (utilexec.CodeExitError{}); errors.As(err, &exit) {
		return ExitCode(exit.Code)
	}
	if ctx.Err() != nil {
		return Interrupted
	}
	if err != nil {
		return fmt.Errorf("error from the agent: %w", err)
	}
	return nil
}

// rawTerminal is the terminal of this process while a session uses it.
type rawTerminal struct {
	file  *os.File
	state *term.State
	sizes chan remotecommand.TerminalSize // nil if there is no terminal
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// makeRaw makes the terminal raw, if in is one: each key goes to the session. The sizes of the
// terminal are received until ctx ends.
func makeRaw(ctx context.Context, in io.Reader) (*rawTerminal, error) {
	if !isTerminal(in) {
		return &rawTerminal{}, nil
	}
	file := in.(*os.File)
	state, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("preparing the terminal: %w", err)
	}
	t := &rawTerminal{file: file, state: state, sizes: make(chan remotecommand.TerminalSize)}
	ctx, t.stop = context.WithCancel(ctx)
	t.done.Go(func() {
		defer close(t.sizes)
		watchSize(ctx, file, t.sizes)
	})
	return t, nil
}

// Next implements [remotecommand.TerminalSizeQueue].
func (t *rawTerminal) Next() *remotecommand.TerminalSize {
	size, ok := <-t.sizes
	if !ok {
		return nil
	}
	return &size
}

// restore makes the terminal what it was.
func (t *rawTerminal) restore() {
	if t.sizes == nil {
		return
	}
	_ = term.Restore(int(t.file.Fd()), t.state)
	t.stop()
	t.done.Wait()
}

// sendSize sends the size of the terminal. It returns false if ctx has ended.
func sendSize(ctx context.Context, file *os.File, sizes chan<- remotecommand.TerminalSize) bool {
	width, height, err := term.GetSize(int(file.Fd()))
	if err != nil || width <= 0 || height <= 0 || width > 0xffff || height > 0xffff {
		return true
	}
	select {
	case sizes <- remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}:
		return true
	case <-ctx.Done():
		return false
	}
}

// isTerminal reports whether the input is a terminal.
func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// streamsOf returns the streams that the flags request. As with kubectl there is a terminal only
// with both flags and an input that is one: of a terminal whose input ends at once, a runtime
// closes the output too.
func (c *call) streamsOf(tty bool) streams {
	s := streams{out: c.Out, err: c.Err}
	if c.stdin {
		s.in = c.In
	}
	if s.tty = tty && c.stdin && isTerminal(c.In); tty && c.stdin && !s.tty && !c.quiet {
		// kubectl's words
		fmt.Fprintln(c.Err, "Unable to use a TTY - input is not a terminal or the right kind of file")
	}
	return s
}

// execCommand is the command exec.
func execCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "exec POD -- COMMAND [ARG...]", Short: "run a command in a container", GroupID: groupContainers,
		Long: "The exit code is that of the command; 127 if there is no such program in the container, 126 if it " +
			"cannot be executed, 125 after other errors.",
		Example: `  minikubelet exec web -- ls /data
  minikubelet exec -it web -- sh`,
	}, (*call).exec, (*call).namespaceFlag, (*call).containerFlag, (*call).streamFlags)
}

// attachCommand is the command attach.
func attachCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "attach POD", Short: "connect to the main process of a container", GroupID: groupContainers,
		Long: "The container goes on when the command is ended. Its spec decides whether it has a terminal (tty) " +
			"and an input (stdin).",
		Example: "  minikubelet attach -i web",
	}, (*call).attach, (*call).namespaceFlag, (*call).containerFlag, (*call).streamFlags)
}

func (c *call) streamFlags(fs *pflag.FlagSet) {
	fs.BoolVarP(&c.stdin, "stdin", "i", false, "pass the input on to the container")
	fs.BoolVarP(&c.tty, "tty", "t", false, "the input is a terminal")
	fs.BoolVarP(&c.quiet, "quiet", "q", false, "print only what the container writes")
}

// exec runs a command in a container.
func (c *call) exec(ctx context.Context) error {
	if c.dash != 1 || len(c.args) < 2 {
		return c.misused("want the name of one pod, --, and a command")
	}
	pod, container, err := c.target(ctx, c.args[0], false)
	if err == nil {
		err = c.client.stream(ctx, PathOf("exec", pod, container), url.Values{"command": c.args[1:]},
			c.streamsOf(c.tty))
	}
	if code := ExitCode(0); err == nil || errors.As(err, &code) {
		return err
	}
	return &Failure{execCode(err.Error()), err}
}

// execCode returns the exit code if a command could not be executed. As with podman it is 127 if there
// is no such program, 126 if it cannot be executed, and 125 for all else, so that 1 is the code of
// the command. Runtimes report the cause only as text.
func execCode(text string) int {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
	}
	switch {
	case !has("error executing command in container"): // the agent's words for what the runtime has answered
		return 125
	case has("executable file not found", "no such file or directory", "is not on this host"):
		return 127
	case has("permission denied", "exec format error", "is a directory"):
		return 126
	default:
		return 125
	}
}

// attach connects to the main process of a container.
func (c *call) attach(ctx context.Context) error {
	if len(c.args) != 1 {
		return c.misused("want the name of one pod")
	}
	pod, container, err := c.target(ctx, c.args[0], false)
	if err != nil {
		return err
	}
	spec, _ := podspec.FindContainer(&pod.Spec, container)
	if c.stdin && !spec.Stdin {
		fmt.Fprintf(c.Err, "Container %s has no input: its spec has no stdin.\n", terminal.Escape(container))
	}
	if c.tty && !spec.TTY {
		// kubectl's words
		fmt.Fprintf(c.Err, "Unable to use a TTY - container %s did not allocate one\n", terminal.Escape(container))
	}
	if c.stdin && spec.TTY && !c.quiet {
		fmt.Fprintln(c.Err, "If you don't see a command prompt, try pressing enter.") // kubectl's words
	}
	s := c.streamsOf(spec.TTY)
	s.tty = spec.TTY // whatever the input is, the process has a terminal
	return c.client.stream(ctx, PathOf("attach", pod, container), url.Values{}, s)
}

// run executes a command in a container for another purpose, such as a copy.
func (c *call) run(ctx context.Context, pod *v1.Pod, container string, in io.Reader, out io.Writer,
	cmd ...string) error {
	return c.client.stream(ctx, PathOf("exec", pod, container), url.Values{"command": cmd},
		streams{in: in, out: out, err: c.Err})
}
