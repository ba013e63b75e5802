// Package checkpoint reads and writes the files in which managers of resources keep what pods have, in kubelet's
// formats.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// DamagedError means that a file has no content that can be used. Other errors are those of the disk.
type DamagedError struct{ Err error }

func (e *DamagedError) Error() string { return e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

// MaxSize is the size of the largest file that a manager writes and reads, in bytes.
const MaxSize = 16 << 20

// Read calls parse with the content of the file, of at most limit bytes. It fails with [os.ErrNotExist], with a
// [*DamagedError], which has the error of parse, too, and with errors of the disk.
func Read(r *safefile.Reader, path string, limit int64, parse func(data []byte) error) error {
	data, err := r.Read(path, limit)
	switch {
	case errors.Is(err, safefile.ErrTooLarge) || errors.Is(err, safefile.ErrType):
		return &DamagedError{err}
	case err != nil:
		return err
	}
	if err := parse(data); err != nil {
		return &DamagedError{err}
	}
	return nil
}

// SetAside renames a damaged file and returns its new name.
func SetAside(path string) (string, error) {
	aside := path + ".damaged"
	return aside, os.Rename(path, aside)
}

// Remove removes the file, if there is one.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the checkpoint: %w", err)
	}
	return nil
}

// write writes the file so that it survives a power loss.
func write(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if err := safefile.WriteSync(path, data); err != nil {
		return err
	}
	return safefile.SyncDir(dir)
}

// Content returns the content of a file. nil means that it is not to be written yet.
type Content func() (data []byte, err error)

// File is a file of a manager: it is read once, and written when its content has changed. Make one with [New]. It is
// safe for concurrent use.
type File struct {
	// Write writes the file. Tests replace it.
	Write func(path string, data []byte) error

	// Reader reads the file.
	Reader safefile.Reader

	path    string
	read    func() error
	content Content
	unsaved flow.Signal
	changes atomic.Uint64 // counts the changes of the content

	reading sync.Mutex // held while the file is read
	done    atomic.Bool
	// failure is the error of the last read, which was at the time failed and of the file seen. It is guarded by
	// reading.
	failure error
	failed  time.Time
	seen    look
	// last is failure, for readers without reading.
	last atomic.Pointer[error]

	saving sync.Mutex // held while the file is written
	saved  uint64     // the changes that the file has
}

// New returns a file. read takes over its content, see [Read]; it is called until it has succeeded once, before content
// is called.
func New(path string, read func() error, content Content) *File {
	return &File{Write: write, path: path, read: read, content: content, unsaved: flow.NewSignal()}
}

// retryUnread is the time after which a file is read again that the disk has not returned.
const retryUnread = time.Second

// Load reads the file, unless it was read. Managers call it for each container: a file that is damaged is not read
// again until it has changed, and one that the disk does not return is read once a second at most. Meanwhile the error
// is that of the last read.
func (f *File) Load() error {
	if f.done.Load() {
		return nil
	}
	f.reading.Lock()
	defer f.reading.Unlock()
	if f.done.Load() {
		return nil
	}
	seen := f.look()
	damaged := errors.As(f.failure, new(*DamagedError))
	if f.failure != nil && seen.same(f.seen) && (damaged || time.Since(f.failed) < retryUnread) {
		return f.failure
	}
	f.failure = f.read()
	f.failed, f.seen = time.Now(), seen
	if err := f.failure; err != nil {
		f.last.Store(&err)
	}
	f.done.Store(f.failure == nil)
	return f.failure
}

// Loaded is Load for callers that others wait for, such as the admission of pods in the sync loop. After a read that
// has failed, it returns the error of the last read, and neither reads nor looks at the file: [File.Run] and Prepare
// do. It reads only if nobody has tried that yet.
func (f *File) Loaded() error {
	if f.done.Load() {
		return nil
	}
	if err := f.last.Load(); err != nil {
		return *err
	}
	return f.Load()
}

// look is the result of a look at a file, without reading it.
type look struct {
	info os.FileInfo
	err  error
}

func (f *File) look() (l look) {
	l.info, l.err = safefile.Do(&f.Reader, f.path, func() (os.FileInfo, error) { return os.Stat(f.path) })
	return l
}

func (l look) same(other look) bool {
	if l.err != nil && other.err != nil {
		return l.err.Error() == other.err.Error()
	}
	return safefile.Unchanged(l.info, other.info)
}

// Save writes the file, unless it has all changes. One write has all changes before it. The error names the
// file.
func (f *File) Save() error {
	if err := f.Load(); err != nil {
		return err
	}
	f.saving.Lock()
	defer f.saving.Unlock()
	changes := f.changes.Load() // before the content: what changes meanwhile is written once more
	if changes == f.saved {
		return nil
	}
	data, err := f.content()
	if err == nil && data == nil {
		return nil
	}
	if err == nil && len(data) > MaxSize {
		err = fmt.Errorf("it would have more than %d MiB, and could not be read again", MaxSize>>20)
	}
	if err == nil {
		err = f.Write(f.path, data)
	}
	if err != nil {
		return fmt.Errorf("writing the checkpoint %s: %w", f.path, err)
	}
	f.saved = changes
	return nil
}

// Changed notes that the content has changed, so that the next write is not left out. It is called after the change, or
// under the lock under which the content is read.
func (f *File) Changed() { f.changes.Add(1) }

// SaveLater has [File.Run] or [File.Flush] write the file: what frees a resource does not need a disk.
func (f *File) SaveLater() { f.unsaved.Notify() }

// Unsaved reports whether SaveLater was called since the last Flush began.
func (f *File) Unsaved() bool { return len(f.unsaved) > 0 }

// Run reads the file, and writes it after each [File.SaveLater], also after failures, until ctx ends. Then it writes it
// a last time, if that is due.
func (f *File) Run(ctx context.Context, log logr.Logger) {
	f.SaveLater()
	f.saver(log).Run(ctx)
}

// Flush returns at once unless SaveLater was called. Otherwise it reads the file if that was not done, and writes it,
// again after failures, until ctx ends. Then it tries a last time.
func (f *File) Flush(ctx context.Context, log logr.Logger) { f.saver(log).Flush(ctx) }

func (f *File) saver(log logr.Logger) flow.Saver {
	return flow.Saver{
		Dirty: f.unsaved, Save: f.Save, Retry: flow.Backoff{Min: time.Second, Max: time.Minute}.After,
		Log: log.WithValues("path", f.path), Failing: "A checkpoint is not up to date; trying again",
		Saved: "The checkpoint is up to date again", Unsaved: "A checkpoint is not up to date",
	}
}
