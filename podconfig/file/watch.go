package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch asks the kernel to tell of changes at a path. It is best effort: where
// the kernel refuses, it says so once and tries again at each look. The parent is
// watched too, for a directory that comes and goes, and for a file that is
// replaced by another.
type watch struct {
	path    string
	problem func(key, path string, err error)

	watcher *fsnotify.Watcher // nil while there is none
	// target is the directory that was at the path when it was watched.
	target os.FileInfo
}

// Keys of the problems that a watch reports.
const (
	watchProblem  = "watch"
	parentProblem = "watch of the parent"
)

// ensure makes the watch what it should be for what is at the path now.
func (w *watch) ensure() {
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			w.problem(watchProblem, w.path, refused(err))
			return
		}
		w.watcher = watcher
	}
	watched := w.watcher.WatchList()
	if parent := filepath.Dir(w.path); parent != w.path && !slices.Contains(watched, parent) {
		// A parent that does not exist is no problem of its own.
		if err := w.watcher.Add(parent); err == nil || os.IsNotExist(err) {
			w.problem(parentProblem, parent, nil)
		} else {
			w.problem(parentProblem, parent, refused(err))
		}
	}
	info, err := os.Stat(w.path)
	if err != nil || !info.IsDir() {
		w.problem(watchProblem, w.path, nil)
		return
	}
	if slices.Contains(watched, w.path) {
		if w.target != nil && os.SameFile(w.target, info) {
			return
		}
		_ = w.watcher.Remove(w.path) // another directory is there now
	}
	if err := w.watcher.Add(w.path); err != nil {
		w.problem(watchProblem, w.path, refused(err))
		return
	}
	w.target = info
	w.problem(watchProblem, w.path, nil)
}

func refused(err error) error {
	return fmt.Errorf("the kernel does not tell of changes, they are found by looking (see fs.inotify in sysctl): %w", err)
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
