package safefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

const (
	// DefaultTimeout is the default of [Reader].Timeout.
	DefaultTimeout = 10 * time.Second
	// endGrace is how long a call may take after its context has ended: nearly all calls return within it, so that
	// their goroutines have ended when the caller returns.
	endGrace = 100 * time.Millisecond
	// maxLate is the number of calls that may have no answer. Each of them takes a thread of the process.
	maxLate = 100
)

// ErrNoAnswer means that the kernel has not answered in time: a file system hangs, or the file is one whose reads wait,
// such as /proc/kmsg.
var ErrNoAnswer = errors.New("no answer from the file system")

// Reader reads files and directories whose paths a user names. What is there may be a file system that hangs, such as
// one of the network, or a file of the kernel whose reads wait. Nothing can end such a call. So Reader makes each call
// in a goroutine of its own, and returns [ErrNoAnswer] after the timeout. The goroutine ends when the kernel answers.
// Until then, calls for the same path fail at once with ErrNoAnswer, so that a path has one goroutine at most. There
// are at most 100 of them; then all calls fail.
//
// If its context ends, a call returns within 100 ms, with the cause.
//
// The zero value is ready for use. It is safe for concurrent use, and must not be copied.
type Reader struct {
	// Timeout is the time limit of a call. Default: [DefaultTimeout].
	Timeout time.Duration

	mu    sync.Mutex
	calls map[string]*call
	late  int // the number of calls whose callers have returned
}

// call is a call that is under way. Its fields are guarded by the mutex of the Reader.
type call struct {
	began time.Time
	done  chan struct{} // is closed after the end
	ended bool
	late  bool // its caller has returned
}

// ReadFile is the function [ReadFile].
func (r *Reader) ReadFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	data, _, err := r.ReadFileInfo(ctx, path, limit)
	return data, err
}

// Read is [Reader.ReadFile] without a context.
func (r *Reader) Read(path string, limit int64) ([]byte, error) {
	return Do(r, path, func() ([]byte, error) { return ReadFile(path, limit) })
}

// ReadFileInfo is [Reader.ReadFile], and returns the file as it was opened, too.
func (r *Reader) ReadFileInfo(ctx context.Context, path string, limit int64) ([]byte, fs.FileInfo, error) {
	type file struct {
		data []byte
		info fs.FileInfo
	}
	f, err := Call(ctx, r, path, func() (out file, err error) {
		f, err := openHost(path)
		if err != nil {
			return out, err
		}
		defer func() { _ = f.Close() }()
		// A read that waits for a device ends with the context; one that waits for a disk or a network does not.
		defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
		out.data, out.info, err = readAll(f, path, limit)
		return out, err
	})
	return f.data, f.info, err
}

// ReadDir is [os.ReadDir].
func (r *Reader) ReadDir(ctx context.Context, path string) ([]fs.DirEntry, error) {
	return Call(ctx, r, path, func() ([]fs.DirEntry, error) { return os.ReadDir(path) })
}

// Stat is [os.Stat].
func (r *Reader) Stat(ctx context.Context, path string) (fs.FileInfo, error) {
	return Call(ctx, r, path, func() (fs.FileInfo, error) { return os.Stat(path) })
}

// Call calls f, which makes calls to the kernel about the path, as [Reader.ReadFile] does. f must not use what others
// change after Call has returned.
func Call[T any](ctx context.Context, r *Reader, path string, f func() (T, error)) (T, error) {
	return CallLate(ctx, r, path, f, func(T) {})
}

// CallLate is [Call], and passes what f returns to late if Call has returned before: late closes it.
func CallLate[T any](ctx context.Context, r *Reader, path string, f func() (T, error), late func(T)) (none T, _ error) {
	if ctx.Err() != nil {
		return none, &fs.PathError{Op: "read", Path: path, Err: context.Cause(ctx)}
	}
	return do(r, path, f, late, ctx.Done(), func() error { return context.Cause(ctx) })
}

// Do is [Call] without a context.
func Do[T any](r *Reader, path string, f func() (T, error)) (T, error) {
	return do(r, path, f, func(T) {}, nil, nil)
}

// do makes a call. If done is closed, the error of cause is returned.
func do[T any](r *Reader, path string, f func() (T, error), late func(T), done <-chan struct{},
	cause func() error) (none T, _ error) {
	timeout := cmp.Or(r.Timeout, DefaultTimeout)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	c, err := r.begin(path, timeout, timer.C, done, cause)
	if err != nil {
		return none, err
	}
	var (
		value T
		ferr  error
	)
	go func() {
		value, ferr = f()
		if r.end(path, c) {
			late(value)
		}
		close(c.done)
	}()
	select {
	case <-c.done:
		return value, ferr
	case <-timer.C:
		err = noAnswer(path, timeout)
	case <-done:
		err = &fs.PathError{Op: "read", Path: path, Err: cause()}
		timer.Reset(endGrace)
		select {
		case <-c.done:
			return value, ferr
		case <-timer.C:
		}
	}
	if !r.leave(c) { // it has ended at this moment
		<-c.done
		return value, ferr
	}
	return none, err
}

// begin begins a call. It waits for one of the same path.
func (r *Reader) begin(path string, timeout time.Duration, timer <-chan time.Time, done <-chan struct{},
	cause func() error) (*call, error) {
	for {
		r.mu.Lock()
		other, late := r.calls[path], r.late
		if other == nil && late < maxLate {
			if r.calls == nil {
				r.calls = map[string]*call{}
			}
			c := &call{began: time.Now(), done: make(chan struct{})}
			r.calls[path] = c
			r.mu.Unlock()
			return c, nil
		}
		r.mu.Unlock()
		if other == nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: it is not read, since %d others "+
				"do not answer", ErrNoAnswer, late)}
		}
		if time.Since(other.began) >= timeout {
			return nil, noAnswer(path, timeout)
		}
		select {
		case <-other.done:
		case <-timer:
			return nil, noAnswer(path, timeout)
		case <-done:
			return nil, &fs.PathError{Op: "read", Path: path, Err: cause()}
		}
	}
}

// end ends a call, and reports whether its caller has returned before.
func (r *Reader) end(path string, c *call) (late bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, path)
	c.ended = true
	if c.late {
		r.late--
	}
	return c.late
}

// leave records that the caller returns before the end of the call. It reports false if the call has ended.
func (r *Reader) leave(c *call) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.ended {
		return false
	}
	c.late = true
	r.late++
	return true
}

// noAnswer is the same each time, so that a problem that lasts is reported once.
func noAnswer(path string, timeout time.Duration) error {
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w within %v", ErrNoAnswer, timeout)}
}

// Unchanged reports whether two looks at a path have found the same file, of the same size, time of change and mode. A
// nil is none.
func Unchanged(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) &&
		a.Mode() == b.Mode()
}
