// Package fswatch watches files and directories with the calls of the kernel, such as inotify. Only this package uses
// fsnotify.
//
// Changes are hints: they are merged, they may be repeated, and they may be lost. A user reads the files afterwards,
// and reads them periodically if the kernel refuses to watch them.
package fswatch

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// Op is the set of what has happened to a path.
type Op = fsnotify.Op

const (
	Create = fsnotify.Create // or moved to the path
	Write  = fsnotify.Write
	Remove = fsnotify.Remove
	Chmod  = fsnotify.Chmod // any attribute
)

// ErrClosed is returned by [Watcher.Add] of a watcher that is closed or nil.
var ErrClosed = fsnotify.ErrClosed

// MaxPaths is the number of paths in Changes. It bounds the memory of a user that does not receive.
const MaxPaths = 4096

var errTooMany = fmt.Errorf("more than %d paths have changed", MaxPaths)

// Changes are the changes since the last receive.
type Changes struct {
	// Ops has the changed paths: those that are watched, and the files in watched directories. They are cleaned, and
	// relative if the watched path is.
	Ops map[string]Op
	// Lost is not nil if there were changes that Ops does not have. They may be about anything that is watched, and
	// what is watched may not be any more.
	Lost error
}

// add merges the change of one path.
func (c *Changes) add(path string, op Op) {
	if _, ok := c.Ops[path]; !ok && len(c.Ops) >= MaxPaths {
		c.Lost = errTooMany
		return
	}
	if c.Ops == nil {
		c.Ops = map[string]Op{}
	}
	c.Ops[path] |= op
}

// Watcher is an instance of inotify, of which a user has 128 by default, and a goroutine that always receives from
// it: fsnotify may send under a lock that Add takes. Make one with [Open]. Its methods are safe for concurrent use. A
// nil Watcher watches nothing.
type Watcher struct {
	kernel  *fsnotify.Watcher
	changes chan Changes
	joined  sync.WaitGroup
}

// Open returns a watcher of nothing. The error names the limit that is reached, see [Refused].
func Open() (*Watcher, error) {
	kernel, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, Refused(err)
	}
	return newWatcher(kernel), nil
}

func newWatcher(kernel *fsnotify.Watcher) *Watcher {
	w := &Watcher{kernel: kernel, changes: make(chan Changes)}
	w.joined.Go(w.collect)
	return w
}

// collect merges changes until the watcher is closed.
func (w *Watcher) collect() {
	defer close(w.changes)
	var pending Changes
	for {
		var changes chan<- Changes // nil, which is never ready, if there are none
		if len(pending.Ops) > 0 || pending.Lost != nil {
			changes = w.changes
		}
		select {
		case e, ok := <-w.kernel.Events:
			if !ok {
				return
			}
			pending.add(filepath.Clean(e.Name), e.Op)
		case err, ok := <-w.kernel.Errors:
			if !ok {
				return
			}
			pending.Lost = err
		case changes <- pending:
			pending = Changes{}
		}
	}
}

// Add watches the file, or the directory and the files in it, until Remove, or until it is removed or renamed. It may
// be called again at any time; inotify then watches what is at the path now. Add may block as long as the file system
// does. The errors are those of the file system, [ErrClosed], and those of [Refused].
func (w *Watcher) Add(path string) error {
	if w == nil {
		return ErrClosed
	}
	return Refused(w.kernel.Add(path))
}

// Remove ends the watch of a path, if there is one.
func (w *Watcher) Remove(path string) {
	if w != nil {
		_ = w.kernel.Remove(path)
	}
}

// Changes returns the channel that delivers changes. It is closed by Close. That of a nil Watcher is nil.
func (w *Watcher) Changes() <-chan Changes {
	if w == nil {
		return nil
	}
	return w.changes
}

// Close ends all watches, and returns when the goroutines have ended. It waits for an Add that is under way.
func (w *Watcher) Close() {
	if w != nil {
		_ = w.kernel.Close()
		w.joined.Wait()
	}
}

// Refused adds to an error of the kernel which limit was reached.
func Refused(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: the limit of inotify watches is reached; raise the sysctl fs.inotify.max_user_watches",
			err)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w: the limit of inotify instances or of open files is reached; raise the sysctl "+
			"fs.inotify.max_user_instances or the agent's open file limit", err)
	default:
		return err
	}
}
