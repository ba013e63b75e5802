package supervise

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Op is the operation of a [Request].
type Op string

const (
	// OpWatch is answered at once. The connection stays open as long as the supervisor
	// lives.
	OpWatch Op = "watch"
	// OpSignal sends Signal to the command's process group.
	OpSignal Op = "signal"
	// OpKill kills the tree. The supervisor ends when no process of it is left.
	OpKill Op = "kill"
	// OpReopen opens the log again, after a rotation.
	OpReopen Op = "reopen"
	// OpLimitLog sets LogLimit. A server sends it for containers of an earlier one, which may have had others.
	OpLimitLog Op = "limitLog"
	// OpExec runs Args in the tree. The files of the message are its standard streams, or
	// its terminal. It is answered twice: with the PID, and with the exit code. If the
	// connection ends before that, the process group of Args is killed.
	OpExec Op = "exec"
	// OpAttach copies the container's output to the one or two files of the message until
	// the connection ends. The answer has the container's input, if there is one.
	OpAttach Op = "attach"
)

// Request is a request to a supervisor. Each has its own connection.
type Request struct {
	Op     Op       `json:"op"`
	Signal int      `json:"signal,omitempty"`
	Args   []string `json:"args,omitempty"`
	TTY    bool     `json:"tty,omitempty"`
	// Stdin requests the input of an attach.
	Stdin    bool     `json:"stdin,omitempty"`
	LogLimit LogLimit `json:"logLimit,omitzero"`
}

// Response answers a [Request].
type Response struct {
	Error string `json:"error,omitempty"`
	PID   int    `json:"pid,omitempty"`
	// Code is set in the second answer to OpExec.
	Code *int `json:"code,omitempty"`
	// OOM is set beside a Code if the kernel has killed the command, or the child whose exit code it has
	// returned, because of the container's memory.
	OOM bool `json:"oom,omitempty"`
}

// maxMessage is the maximum size of a message. The arguments of a command have at most
// 2 MiB (execve(2)).
const maxMessage = 8 << 20

// maxFiles is the maximum number of files of a message.
const maxFiles = 3

// Conn is a connection between the server and a supervisor. It is not safe for
// concurrent use, except for Close.
type Conn struct{ c *net.UnixConn }

// Dial connects to the supervisor of the container in dir. It fails if ctx ends or the
// timeout passes first. The connection itself does not depend on ctx.
func Dial(ctx context.Context, dir string, timeout time.Duration) (*Conn, error) {
	// The path of a socket has at most 107 bytes, which dir may exceed.
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0) // it does not wait if it is a pipe
	if err != nil {
		return nil, err
	}
	defer d.Close()
	dialer := net.Dialer{Timeout: timeout}
	c, err := dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), SocketFile))
	if err != nil {
		return nil, err
	}
	return &Conn{c.(*net.UnixConn)}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.c.Close() }

// SetDeadline sets the deadline of Send and Receive.
func (c *Conn) SetDeadline(t time.Time) { _ = c.c.SetDeadline(t) }

// Send sends a message with files. The caller closes the files.
func (c *Conn) Send(v any, files ...*os.File) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			raw, err := f.SyscallConn()
			if err != nil {
				return err
			}
			// Not Fd, which would make the file block.
			if err := raw.Control(func(fd uintptr) { fds[i] = int(fd) }); err != nil {
				return err
			}
		}
		oob = unix.UnixRights(fds...)
	}
	msg := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	if _, _, err := c.c.WriteMsgUnix(msg, oob, nil); err != nil {
		return err
	}
	_, err = c.c.Write(body)
	return err
}

// Receive receives a message with files. The caller closes the files.
func (c *Conn) Receive(v any) (files []*os.File, err error) {
	head, oob := make([]byte, 4), make([]byte, unix.CmsgSpace(maxFiles*4))
	n, oobn, _, _, err := c.c.ReadMsgUnix(head, oob)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			CloseFiles(files)
			files = nil
		}
	}()
	if oobn > 0 {
		if files, err = parseRights(oob[:oobn]); err != nil {
			return files, err
		}
	}
	if n == 0 {
		return files, io.EOF
	}
	if _, err := io.ReadFull(c.c, head[n:]); err != nil {
		return files, err
	}
	size := binary.BigEndian.Uint32(head)
	if size > maxMessage {
		return files, fmt.Errorf("a message of %d bytes, more than %d", size, maxMessage)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.c, body); err != nil {
		return files, err
	}
	return files, json.Unmarshal(body, v)
}

func parseRights(oob []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// AnswerError is the error of a request that a supervisor has answered.
type AnswerError string

func (e AnswerError) Error() string { return string(e) }

// Receive1 receives a response without files. The error includes that of the response, which is an [AnswerError].
func (c *Conn) Receive1() (Response, error) {
	var r Response
	files, err := c.Receive(&r)
	CloseFiles(files)
	if err == nil && r.Error != "" {
		err = AnswerError(r.Error)
	}
	return r, err
}

// CloseFiles closes the files that are not nil.
func CloseFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// Call sends a request that is answered at once, and waits for the answer. If ctx ends
// first, it returns the error of ctx, and the supervisor may or may not have executed the
// request.
func Call(ctx context.Context, dir string, req Request, timeout time.Duration) error {
	c, err := Dial(ctx, dir, timeout)
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	c.SetDeadline(time.Now().Add(timeout))
	if err = c.Send(req); err == nil {
		_, err = c.Receive1()
	}
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return nil
}
