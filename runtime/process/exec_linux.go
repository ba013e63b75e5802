package process

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

const (
	// maxExecOutput is the maximum that ExecSync returns of each stream, in bytes. All probes
	// may run at the same time, and their output is chosen by containers. Attach and exec
	// have no limit.
	maxExecOutput = 1 << 20
	// drainTimeout is the time to wait for new output after a command has ended. A process that
	// the command has left may hold the other end for ever. Output that was written before is read in any case.
	drainTimeout = 200 * time.Millisecond
)

// errEnded means that the container has ended before the command in it.
var errEnded = errors.New("the container has ended")

// execution is a running command in a container.
type execution struct{ conn *supervise.Conn }

// execute starts a command in the container through its supervisor. The files are its
// three standard streams, or its terminal. The caller closes them.
func execute(ctx context.Context, c *container, args []string, tty bool, files ...*os.File) (*execution, error) {
	conn, err := supervise.Dial(ctx, c.dir, supervisorPatience)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, errors.Join(errEnded, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	conn.SetDeadline(time.Now().Add(supervisorPatience))
	err = conn.Send(supervise.Request{Op: supervise.OpExec, Args: args, TTY: tty}, files...)
	if err == nil {
		_, err = conn.Receive1()
	}
	if err != nil {
		_ = conn.Close()
		return nil, errors.Join(ctx.Err(), err)
	}
	conn.SetDeadline(time.Time{})
	return &execution{conn}, nil
}

// oomMessage is written to the error output of a command that the kernel has killed because of its memory: its
// exit code alone does not say why.
const oomMessage = "OOMKilled: the container is at its memory limit, and the kernel has killed the command\n"

// wait returns the exit code of the command, and whether the kernel has killed it because of its memory. If
// ctx ends first, the process group of the command is killed.
func (e *execution) wait(ctx context.Context) (code int, oom bool, err error) {
	defer e.conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = e.conn.Close() })
	defer stop()
	r, err := e.conn.Receive1()
	switch {
	case err == nil && r.Code != nil:
		return *r.Code, r.OOM, nil
	case ctx.Err() != nil:
		return 0, false, ctx.Err()
	default:
		return 0, false, errEnded
	}
}

// ExecSync implements CRI. After the timeout, or when the call is cancelled, the process
// group of the command is killed. Each stream is cut at 1 MiB. What a command writes beyond that is
// read slowly and discarded, as containerd discards it: its exit code is that of the whole command.
func (s *runtimeService) ExecSync(ctx context.Context, req *criv1.ExecSyncRequest) (*criv1.ExecSyncResponse, error) {
	if len(req.GetCmd()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no command is given")
	}
	c, err := s.running(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if req.GetTimeout() > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, podspec.Seconds(req.GetTimeout()))
		defer cancel()
	}
	var out, errOut capture
	code, err := run(ctx, c, req.GetCmd(), nil, &out, &errOut)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, status.Errorf(codes.DeadlineExceeded, "%s: the command did not end within %d s", c.about(),
			req.GetTimeout())
	case errors.Is(err, context.Canceled):
		return nil, status.FromContextError(err).Err()
	case err != nil:
		return nil, status.Errorf(codes.Unknown, "%s: executing a command: %v", c.about(), err)
	}
	return &criv1.ExecSyncResponse{Stdout: out.data, Stderr: errOut.data, ExitCode: int32(code)}, nil
}

// run runs a command without a terminal and returns its exit code. in, out and errOut may
// be nil.
func run(ctx context.Context, c *container, args []string, in io.Reader, out, errOut io.Writer) (int, error) {
	p := &pipes{}
	defer p.close()
	stdin, err := p.from(in)
	if err != nil {
		return 0, err
	}
	stdout, err := p.to(out)
	if err != nil {
		return 0, err
	}
	stderr, err := p.to(errOut)
	if err != nil {
		return 0, err
	}
	e, err := execute(ctx, c, args, false, stdin, stdout, stderr)
	if err != nil {
		return 0, err
	}
	p.started()
	code, oom, err := e.wait(ctx)
	p.drain()
	if oom && errOut != nil {
		_, _ = io.WriteString(errOut, oomMessage)
	}
	return code, err
}

// pipes connects readers and writers with the streams of a process.
type pipes struct {
	theirs, ours []*os.File
	reads        []*supervise.Output // of files in ours
	outputs      sync.WaitGroup
	copies       []func()
}

// from returns a file from which the process reads the content of r. If r is nil, the file
// is empty. Bytes that are read from r after the process has ended are lost.
func (p *pipes) from(r io.Reader) (*os.File, error) {
	if r == nil {
		null, err := os.Open(os.DevNull)
		p.theirs = append(p.theirs, null)
		return null, err
	}
	their, our, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	their.Fd() // makes the file blocking, as programs expect
	p.theirs, p.ours = append(p.theirs, their), append(p.ours, our)
	p.copies = append(p.copies, func() {
		// The goroutine ends when r does, which is when its connection is closed.
		go func() {
			_, _ = io.Copy(our, r)
			_ = our.Close()
		}()
	})
	return their, nil
}

// to returns a file to which the process writes. Its content is copied to w, which may be
// nil.
func (p *pipes) to(w io.Writer) (*os.File, error) {
	if w == nil {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		p.theirs = append(p.theirs, null)
		return null, err
	}
	our, their, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	their.Fd() // makes the file blocking, as programs expect
	output := supervise.NewOutput(our, drainTimeout)
	p.theirs, p.ours, p.reads = append(p.theirs, their), append(p.ours, our), append(p.reads, output)
	p.copies = append(p.copies, func() {
		p.outputs.Go(func() { _, _ = io.Copy(w, output) })
	})
	return their, nil
}

// started starts the copying and closes the ends that the process has.
func (p *pipes) started() {
	supervise.CloseFiles(p.theirs)
	p.theirs = nil
	for _, f := range p.copies {
		f()
	}
}

// ended tells that the process has ended: new output is waited for until drainTimeout.
func (p *pipes) ended() {
	for _, o := range p.reads {
		o.End()
	}
}

// drain returns when the writers have all that the process has written. A slow one is waited for.
func (p *pipes) drain() {
	p.ended()
	p.outputs.Wait()
}

func (p *pipes) close() {
	supervise.CloseFiles(p.theirs)
	supervise.CloseFiles(p.ours)
}

// discardPause is how long a write takes of which nothing is kept. io.Copy writes 32 KiB at once, so a
// command writes up to 8 MB/s beyond the limit, which takes 3 % of a core; 35 % without the pause.
const discardPause = 4 * time.Millisecond

// capture keeps the first maxExecOutput bytes that are written to it. The rest is discarded slowly:
// the command goes on, since its exit code counts, and takes no core of the agent.
type capture struct{ data []byte }

func (c *capture) Write(b []byte) (int, error) {
	if len(c.data) == maxExecOutput {
		time.Sleep(discardPause)
	}
	c.data = append(c.data, b[:min(len(b), maxExecOutput-len(c.data))]...)
	return len(b), nil
}
