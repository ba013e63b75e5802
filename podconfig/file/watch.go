package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
)

// watch asks the kernel to tell of changes at a path. It is best effort: where
// the kernel refuses, it says so once and tries again at each look. The parent is
// watched too, for a directory that comes and goes, and for a file that is
// replaced by another.
type watch struct {
	path   string
	logger logr.Logger
	kernel kernel

	watcher *fsnotify.Watcher // nil while there is none
	// target is the directory that was at the path when it was watched.
	target os.FileInfo
	// refusal is what was said last of a kernel that refuses, "" if it does not.
	refusal string
}

// kernel is what a watch asks for events. Tests have one that refuses.
type kernel struct {
	open func() (*fsnotify.Watcher, error)
	add  func(w *fsnotify.Watcher, path string) error
}

func inotify() kernel { return kernel{fsnotify.NewWatcher, (*fsnotify.Watcher).Add} }

// ensure makes the watch what it should be for what is at the path now.
func (w *watch) ensure() {
	err := w.cover()
	switch {
	case err == nil && w.refusal != "":
		w.refusal = ""
		w.logger.Info("The kernel tells of changes of the manifests again", "path", w.path)
	case err != nil && err.Error() != w.refusal:
		w.refusal = err.Error()
		w.logger.Error(err, "The kernel does not tell of changes of the manifests; they are found by the periodic look alone", "path", w.path)
	}
}

// cover watches the path and its parent as far as they exist.
func (w *watch) cover() error {
	if w.watcher == nil {
		watcher, err := w.kernel.open()
		if err != nil {
			return refused(err)
		}
		w.watcher = watcher
	}
	watched := w.watcher.WatchList()
	var parentErr error
	if parent := filepath.Dir(w.path); parent != w.path && !slices.Contains(watched, parent) {
		parentErr = w.add(parent)
	}
	info, err := os.Stat(w.path)
	if err != nil || !info.IsDir() {
		return parentErr
	}
	if slices.Contains(watched, w.path) {
		if w.target != nil && os.SameFile(w.target, info) {
			return parentErr
		}
		_ = w.watcher.Remove(w.path) // another directory is there now
	}
	if err := w.add(w.path); err != nil {
		return err
	}
	w.target = info
	return parentErr
}

// add watches a path. That it does not exist is no error.
func (w *watch) add(path string) error {
	if err := w.kernel.add(w.watcher, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return refused(err)
	}
	return nil
}

// refused says which limit was reached, if one was.
func refused(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: the limit of inotify watches is reached; raise the sysctl fs.inotify.max_user_watches", err)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w: the limit of inotify instances or of open files is reached; raise the sysctl fs.inotify.max_user_instances or the agent's open file limit", err)
	default:
		return err
	}
}

// concerns reports whether an event is about the path or what is in it, not about
// a neighbour.
func (w *watch) concerns(name string) bool {
	name = filepath.Clean(name) // the kernel's names begin with the path as it was watched, as in "./x"
	return name == w.path || filepath.Dir(name) == w.path
}

// gather takes the events of the next moments.
func (w *watch) gather(ctx context.Context, d time.Duration, suspect func(name string)) {
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
				return // seen again, and acted upon, by the caller
			}
			if w.concerns(event.Name) {
				suspect(event.Name)
			}
		}
	}
}

// events and errors are nil, which never is ready, while there is no watcher.
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
