package server

import (
	"path/filepath"
	"slices"
	"sync"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
)

// logWatch wakes the readers that follow logs when the kernel reports that something was
// written next to their log. All readers share one instance of inotify, of which a user has
// 128 by default, and one goroutine. There is neither while no client follows a log.
type logWatch struct {
	log  logr.Logger
	open func() (*fswatch.Watcher, error)

	// kernel is held during calls of the kernel, before mu. The goroutine of the watcher does
	// not need it. It guards the fields up to mu.
	kernel  sync.Mutex
	watcher *fswatch.Watcher // nil while there are no readers
	joined  sync.WaitGroup   // the goroutine of watcher
	// refused means that the last call of the kernel has failed, which was logged.
	refused bool

	mu sync.Mutex
	// readers are the channels of the readers, by the directory of their logs. Each has room
	// for one value.
	readers map[string][]chan struct{}
}

func newLogWatch(log logr.Logger) *logWatch {
	return &logWatch{log: log, open: fswatch.Open, readers: map[string][]chan struct{}{}}
}

// add returns a channel that receives a value when something may have been written to the
// log, or the log was replaced. What happens before the value is taken is one value. The
// channel is nil if the kernel refuses to watch. The caller calls stop at the end.
func (l *logWatch) add(path string) (written <-chan struct{}, stop func()) {
	dir := filepath.Dir(path)
	l.kernel.Lock()
	defer l.kernel.Unlock()
	if err := l.cover(dir); err != nil {
		if !l.refused {
			l.log.Error(err, "The kernel does not report what is written to logs: readers that follow a log look "+
				"once a second", "directory", dir)
		}
		l.refused = true
		l.closeIfUnused()
		return nil, func() {}
	}
	l.refused = false
	c := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers[dir] = append(l.readers[dir], c)
	return c, func() { l.remove(dir, c) }
}

// cover watches the directory. The caller holds kernel.
func (l *logWatch) cover(dir string) error {
	if l.watcher == nil {
		w, err := l.open()
		if err != nil {
			return err
		}
		l.watcher = w
		l.joined.Go(func() { l.run(w.Changes()) })
	}
	return l.watcher.Add(dir)
}

func (l *logWatch) remove(dir string, c chan struct{}) {
	l.kernel.Lock()
	defer l.kernel.Unlock()
	l.mu.Lock()
	others := slices.DeleteFunc(l.readers[dir], func(o chan struct{}) bool { return o == c })
	l.readers[dir] = others
	if len(others) == 0 {
		delete(l.readers, dir)
	}
	l.mu.Unlock()
	if len(others) == 0 {
		l.watcher.Remove(dir)
	}
	l.closeIfUnused()
}

// closeIfUnused ends the goroutine if there are no readers. The caller holds kernel.
func (l *logWatch) closeIfUnused() {
	l.mu.Lock()
	used := len(l.readers) > 0
	l.mu.Unlock()
	if used || l.watcher == nil {
		return
	}
	l.watcher.Close()
	l.joined.Wait()
	l.watcher = nil
}

// run passes changes on until the watcher is closed.
func (l *logWatch) run(all <-chan fswatch.Changes) {
	for changes := range all {
		for path := range changes.Ops {
			l.wake(path)
		}
		if changes.Lost != nil {
			l.wakeAll()
		}
	}
}

// wake wakes the readers of the logs in the directory of the file, or in the directory itself
// if it is the one that has changed.
func (l *logWatch) wake(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	send(l.readers[filepath.Dir(name)])
	send(l.readers[name])
}

func (l *logWatch) wakeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, readers := range l.readers {
		send(readers)
	}
}

// send sends a value to each channel that has none.
func send(readers []chan struct{}) {
	for _, c := range readers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
