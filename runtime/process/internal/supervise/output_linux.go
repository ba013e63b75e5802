package supervise

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// After End and its wait, an [Output] returns what its file has, and at most so many bytes, in so many
// reads, of what comes later: a process that was left behind may write without an end, and the reader
// may be slow. maxLate is the largest pipe of a process without privileges, which is what a filter such
// as tee still has to write. Reads of a slow reader have large pieces of it.
const (
	maxLate      = 1 << 20
	maxLateReads = 256
)

// Output reads what a process writes to a pipe or to a terminal. The process may leave behind others,
// which have the file open for ever, so that it has no end of its own. After End, Output therefore ends
// when the file is empty and stays so for a time. That time bounds waiting alone: what was written is
// returned, however late it is read. Time that passes between two reads, such as that of a write to a
// slow client, does not count.
//
// Only one goroutine may call Read. End may be called at any time.
type Output struct {
	f    *os.File
	wait time.Duration

	mu    sync.Mutex
	until time.Time // that of a read that has begun before End; zero before End

	// Owned by the reader, after End:

	waited  time.Duration
	late    bool // a read has begun after End, when the file had content bytes
	content int
	read    int // bytes since then
	reads   int // beyond content
}

// NewOutput returns an output of a file that does not block, as those of [os.Pipe] and [OpenTTY].
// wait is the time that reads wait after End, in sum.
func NewOutput(f *os.File, wait time.Duration) *Output { return &Output{f: f, wait: wait} }

// End tells that the process has ended. Calls after the first one have no effect.
func (o *Output) End() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.until.IsZero() {
		o.until = time.Now().Add(o.wait)
		_ = o.f.SetReadDeadline(o.until) // of a read that waits
	}
}

func (o *Output) ended() (until time.Time, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.until, !o.until.IsZero()
}

// Read implements [io.Reader].
func (o *Output) Read(b []byte) (int, error) {
	until, ended := o.ended()
	if !ended {
		n, err := o.f.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		o.waited = o.wait
		until, _ = o.ended()
	}
	if !o.late {
		o.late, o.content = true, o.available()
	}
	if (o.read >= o.content+maxLate || o.reads >= maxLateReads) && !time.Now().Before(until) {
		return 0, io.EOF
	}
	if o.read >= o.content {
		o.reads++
	}
	n, err := o.readLate(b)
	o.read += n
	return n, err
}

// readLate reads after End.
func (o *Output) readLate(b []byte) (int, error) {
	for {
		n, err := o.readNow(b)
		if !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
		if o.waited >= o.wait {
			return 0, io.EOF
		}
		began := time.Now()
		if err := o.f.SetReadDeadline(began.Add(o.wait - o.waited)); err != nil {
			return 0, err
		}
		n, err = o.f.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			o.waited += time.Since(began)
			return n, err
		}
		o.waited = o.wait // and what came meanwhile is read
	}
}

// readNow reads without waiting, although the deadline may have passed. The error is EAGAIN if
// nothing is there.
func (o *Output) readNow(b []byte) (n int, err error) {
	raw, err := o.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) {
		for {
			if n, err = unix.Read(int(fd), b); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	switch {
	case failed != nil:
		return 0, failed
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// available returns the number of bytes that can be read now. A terminal may have more, but less than
// maxLate.
func (o *Output) available() (n int) {
	if raw, err := o.f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if got, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
				n = got
			}
		})
	}
	return n
}
