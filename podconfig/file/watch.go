package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
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

	covered
	// refusal is the error that was logged last. It is empty if the kernel accepts.
	refusal string
}

// kernel are the calls of inotify. Tests have a kernel that refuses.
type kernel struct {
	open func() (*fswatch.Watcher, error)
	add  func(w *fswatch.Watcher, path string) error
}

func inotify() kernel { return kernel{fswatch.Open, (*fswatch.Watcher).Add} }

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

// covered is a watcher of the kernel, nil while there is none, and the directory at the path that it watches.
type covered struct {
	watcher *fswatch.Watcher
	target  os.FileInfo
}

// cover watches the path and its parent as far as they exist. If a call to the kernel has no answer, it has the
// watcher, and the next call has another one.
func (w *watch) cover(ctx context.Context) error {
	had, began := w.covered, atomic.Bool{}
	type result struct {
		covered
		err error
	}
	now, err := safefile.CallLate(ctx, w.reader, w.path+" (watch)", func() (result, error) {
		began.Store(true)
		c, err := w.coverFrom(had)
		return result{c, err}, nil
	}, func(late result) { late.watcher.Close() })
	if err != nil && !began.Load() {
		return err
	}
	w.covered = now.covered
	return errors.Join(err, now.err)
}

// coverFrom returns what is watched afterwards. It only reads the fields of w that never change.
func (w *watch) coverFrom(c covered) (covered, error) {
	if c.watcher == nil {
		watcher, err := w.kernel.open()
		if err != nil {
			return c, err
		}
		c = covered{watcher: watcher}
	}
	var parentErr error
	if parent := filepath.Dir(w.path); parent != w.path {
		parentErr = w.add(c.watcher, parent)
	}
	info, err := os.Stat(w.path)
	if err != nil || !info.IsDir() {
		return c, parentErr
	}
	if c.target != nil && !os.SameFile(c.target, info) {
		c.watcher.Remove(w.path) // the path is another directory now
	}
	if err := w.add(c.watcher, w.path); err != nil {
		return c, err
	}
	c.target = info
	return c, parentErr
}

// add watches a path. A path that does not exist is no error.
func (w *watch) add(watcher *fswatch.Watcher, path string) error {
	if err := w.kernel.add(watcher, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// take passes changes on to the state, and reports whether there are any. The parent is watched too, so that there are
// changes of other files.
func (w *watch) take(changes fswatch.Changes, s *state) (some bool) {
	for path, op := range changes.Ops {
		if path == w.path || filepath.Dir(path) == w.path {
			s.changed(path, op)
			some = true
		}
	}
	if changes.Lost == nil {
		return some
	}
	w.logger.Info("Events of the manifest directory were lost; reading all files", "path", w.path,
		"error", changes.Lost.Error())
	w.close() // the lost events may be about what is watched
	s.suspectAll()
	return true
}

// gather takes the changes of the next moments.
func (w *watch) gather(ctx context.Context, d time.Duration, s *state) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case changes := <-w.watcher.Changes():
			w.take(changes, s)
		}
	}
}

func (w *watch) close() {
	w.watcher.Close()
	w.covered = covered{}
}
