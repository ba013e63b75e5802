package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// watch receives changes at a path from the kernel. It is best effort: if the kernel
// refuses, that is logged once, and each scan tries again. The parent is watched too,
// for a directory that is removed and created again, and for a file that is replaced.
type watch struct {
	path   string
	logger logr.Logger
	kernel kernel
	reader *safefile.Reader

	watcher *fsnotify.Watcher // nil while there is none
	// target is the directory that was at the path when it was watched.
	target os.FileInfo
	// refusal is the error that was logged last. It is empty if the kernel accepts.
	refusal string
}

// kernel are the calls of inotify. Tests have a kernel that refuses.
type kernel struct {
	open func() (*fsnotify.Watcher, error)
	add  func(w *fsnotify.Watcher, path string) error
}

func inotify() kernel { return kernel{fsnotify.NewWatcher, (*fsnotify.Watcher).Add} }

// ensure watches what is at the path now.
func (w *watch) ensure(ctx context.Context) {
	err := w.cover(ctx)
	switch {
	case ctx.Err() != nil: // the source ends
	case err == nil && w.refusal != "":
		w.refusal = ""
		w.logger.Info("The kernel reports changes of the manifests again", "path", w.path)
	case err != nil && err.Error() != w.refusal:
		w.refusal = err.Error()
		w.logger.Error(err, "The kernel does not report changes of the manifests; only the periodic scan finds them",
			"path", w.path)
	}
}

// covered is a watcher of the kernel, and the directory at the path that it watches.
type covered struct {
	watcher *fsnotify.Watcher
	target  os.FileInfo
}

// cover watches the path and its parent as far as they exist. If a call to the kernel has no answer, it has the
// watcher, and the next call has another one.
func (w *watch) cover(ctx context.Context) error {
	had, began := covered{w.watcher, w.target}, atomic.Bool{}
	type result struct {
		covered
		err error
	}
	now, err := safefile.CallLate(ctx, w.reader, w.path+" (watch)", func() (result, error) {
		began.Store(true)
		c, err := w.coverFrom(had)
		return result{c, err}, nil
	}, func(late result) {
		if late.watcher != nil {
			_ = late.watcher.Close()
		}
	})
	if err != nil && !began.Load() {
		return err
	}
	w.watcher, w.target = now.watcher, now.target
	return errors.Join(err, now.err)
}

// coverFrom returns what is watched afterwards. It only reads the fields of w that never change.
func (w *watch) coverFrom(c covered) (covered, error) {
	if c.watcher == nil {
		watcher, err := w.kernel.open()
		if err != nil {
			return c, refused(err)
		}
		c = covered{watcher: watcher}
	}
	watched := c.watcher.WatchList()
	var parentErr error
	if parent := filepath.Dir(w.path); parent != w.path && !slices.Contains(watched, parent) {
		parentErr = w.add(c.watcher, parent)
	}
	info, err := os.Stat(w.path)
	if err != nil || !info.IsDir() {
		return c, parentErr
	}
	if slices.Contains(watched, w.path) {
		if c.target != nil && os.SameFile(c.target, info) {
			return c, parentErr
		}
		_ = c.watcher.Remove(w.path) // the path is another directory now
	}
	if err := w.add(c.watcher, w.path); err != nil {
		return c, err
	}
	c.target = info
	return c, parentErr
}

// add watches a path. A path that does not exist is no error.
func (w *watch) add(watcher *fsnotify.Watcher, path string) error {
	if err := w.kernel.add(watcher, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return refused(err)
	}
	return nil
}

// refused adds to an error of the kernel which limit was reached.
func refused(err error) error {
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

// concerns reports whether an event is about the path or a file in it. The parent is
// watched too, so others occur.
func (w *watch) concerns(name string) bool {
	name = filepath.Clean(name) // events have the path as it was watched, as in "./x"
	return name == w.path || filepath.Dir(name) == w.path
}

// gather passes on the events of the next moments.
func (w *watch) gather(ctx context.Context, d time.Duration, each func(fsnotify.Event)) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case event, ok := <-w.events():
			if !ok {
				return // the caller sees the closed channel too
			}
			if w.concerns(event.Name) {
				each(event)
			}
		}
	}
}

// events and errors return a nil channel, which is never ready, without a watcher.
func (w *watch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *watch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
		w.watcher, w.target = nil, nil
	}
}
