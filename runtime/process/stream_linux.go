package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// execStream runs a command in a container with the streams of a client. It is killed when ctx ends.
func (s *Server) execStream(ctx context.Context, id string, cmd []string, streams runtime.Streams) (int32, error) {
	c, err := s.running(id)
	if err != nil {
		return 0, err
	}
	var code int
	if streams.TTY {
		code, err = runTTY(ctx, c, cmd, streams)
	} else {
		code, err = run(ctx, c, cmd, streams.Stdin, streams.Stdout, streams.Stderr)
	}
	return int32(code), err
}

// runTTY runs a command with a new terminal.
func runTTY(ctx context.Context, c *container, cmd []string, streams runtime.Streams) (int, error) {
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
	screen := supervise.NewOutput(master, drainTimeout)
	var output sync.WaitGroup
	if streams.Stdout != nil {
		output.Go(func() { _, _ = io.Copy(streams.Stdout, screen) })
	}
	if streams.Stdin != nil {
		go func() { _, _ = io.Copy(master, streams.Stdin) }() // ends with the stream
	}
	resized := follow(ctx, master, streams.Sizes)
	defer resized()
	code, oom, err := e.wait(ctx)
	screen.End()
	output.Wait()
	if oom && streams.Stdout != nil {
		_, _ = io.WriteString(streams.Stdout, strings.ReplaceAll(oomMessage, "\n", "\r\n"))
	}
	return code, err
}

// follow sets the size of a terminal for each size that it receives, until stop is called.
func follow(ctx context.Context, tty *os.File, sizes <-chan runtime.TerminalSize) (stop func()) {
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

func setSize(tty *os.File, size runtime.TerminalSize) {
	raw, err := tty.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
	})
}

// attachStream connects the streams of a client with a container. It returns when the container or ctx has
// ended.
func (s *Server) attachStream(ctx context.Context, id string, streams runtime.Streams) error {
	c, err := s.running(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx) // for what follows sizes
	defer cancel()
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
	stdout, err := p.to(discardIfNil(streams.Stdout))
	if err != nil {
		return err
	}
	files := []*os.File{stdout}
	if !streams.TTY {
		stderr, err := p.to(discardIfNil(streams.Stderr))
		if err != nil {
			return err
		}
		files = append(files, stderr)
	}
	if err := conn.Send(supervise.Request{Op: supervise.OpAttach, Stdin: streams.Stdin != nil || streams.TTY},
		files...); err != nil {
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
		if streams.Stdin != nil {
			go func() { // ends with the stream
				_, _ = io.Copy(input[0], streams.Stdin)
				if !streams.TTY {
					_ = input[0].Close() // with stdinOnce, the container reads the end of its input
				}
			}()
		}
		if streams.TTY {
			resized := follow(ctx, input[0], streams.Sizes)
			defer resized()
		}
	}
	cut := context.AfterFunc(ctx, p.ended) // a supervisor that is stopped does not close the other ends
	defer cut()
	p.outputs.Wait() // until the container ends or the connection is closed
	return nil
}

// discardIfNil returns a writer for a stream that the client does not request.
func discardIfNil(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// forwardPort connects a client with a port until ctx ends. The ports of a pod are those of the host.
func (s *Server) forwardPort(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	if _, err := s.sandbox(id); err != nil {
		return err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("port %d of the host: %w", port, err)
	}
	defer conn.Close()
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
