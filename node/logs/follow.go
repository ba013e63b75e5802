package logs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// log is the log of one instance of a container.
type log struct {
	ref       runtime.PodRef
	container string
	id        runtime.ContainerID
	path      string
	// ended is closed when the log is not followed any more.
	ended chan struct{}

	// active means that a goroutine follows the log. again means that the log was written to, or may have been, since
	// the goroutine has last begun to watch it. Manager.mu guards both.
	active, again bool

	// The goroutine that follows the log has the fields up to files.
	// known is the size when the log was last quiet, or -1.
	known int64
	// file is the file when it was last looked at.
	file os.FileInfo
	// begun means that the log was followed before, and unwatched that the kernel does not watch it, which was logged.
	begun, unwatched bool

	// files guards the names in the directory of the log, and compressing. It is not held while a file is compressed.
	files sync.Mutex
	// compressing means that a goroutine compresses rotated files. more means that there are more files since it has
	// last looked.
	compressing, more bool
}

// errNotRegular means that a log is something else than a regular file.
var errNotRegular = errors.New("it is not a regular file")

// size returns the size of the log.
func (l *log) size() (int64, error) {
	size, _, err := l.stat()
	return size, err
}

// stat returns the size of the log, and its file.
func (l *log) stat() (int64, os.FileInfo, error) {
	info, err := os.Lstat(l.path)
	switch {
	case err != nil:
		return -1, nil, err
	case !info.Mode().IsRegular():
		return -1, nil, errNotRegular
	}
	return info.Size(), info, nil
}

func (l *log) hasEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// failures bound the back-off of a rotation that fails.
var failures = flow.Backoff{Min: time.Second, Max: 5 * time.Minute}

// follow reads the size of the log, and rotates it, until it is quiet. It counts the goroutines that it starts in
// workers.
func (m *Manager) follow(ctx context.Context, w watcher, l *log, workers *sync.WaitGroup) {
	w.Remove(l.path) // no more events
	logger := m.log.WithValues("pod", l.ref, "container", l.container, "log", l.path)
	if !m.below(l) {
		logger.Error(nil, "A log is not rotated, since it is not below the directory of the logs of pods",
			"dir", m.opts.Dir)
		return // it stays active, so that no event starts this again
	}
	if !l.begun {
		l.begun = true
		l.known, _ = l.size()
		m.compress(ctx, l, workers, logger) // what an earlier agent has left
	}
	last, failed, reported := l.known, 0, false
	for ctx.Err() == nil && !l.hasEnded() {
		size, file, err := l.stat()
		rotated := m.opts.RuntimeRotates && file != nil && l.file != nil && (!os.SameFile(l.file, file) || size < last)
		if rotated {
			m.report(l, nil)
			m.compress(ctx, l, workers, logger)
		}
		l.file = file
		if errors.Is(err, errNotRegular) {
			logger.Error(err, "A log is not rotated")
			return // as above
		}
		grown := rotated || size != last
		last = size
		wait := m.checkAfter(size)
		if err != nil || m.exceeds(size) && (grown || failed == 0) {
			if err != nil && m.opts.RuntimeRotates {
				err = m.rt.ReopenContainerLog(ctx, l.id) // it may be about to make a new file
			} else {
				err = m.rotate(ctx, l)
			}
			switch {
			case err == nil:
				m.report(l, nil)
				m.compress(ctx, l, workers, logger)
				last, grown, failed, reported, wait = 0, true, 0, false, m.checkAfter(0)
				l.file = nil
			case ctx.Err() == nil && !l.hasEnded():
				failed++
				wait = failures.After(failed)
				if errors.Is(err, runtime.ErrNotFound) {
					logger.V(1).Info("A log is not rotated, since its container has ended")
				} else if !reported {
					reported = true
					m.report(l, err)
					logger.Error(err, "A log cannot be rotated, trying again while the container writes to it",
						"after", wait)
				}
			}
		}
		if !grown {
			switch quiet, err := m.watch(w, l, size); {
			case quiet:
				return
			case err != nil:
				wait = max(wait, m.opts.Interval)
				if !l.unwatched && !errors.Is(err, fs.ErrNotExist) {
					l.unwatched = true
					m.reportUnwatched(logger, err)
				}
			}
		}
		if !sleep(ctx, l, wait) {
			return
		}
	}
}

// checkAfter returns the time until the size of an active log is read again. If the runtime rotates, only compression
// waits for that.
func (m *Manager) checkAfter(size int64) time.Duration {
	if m.opts.RuntimeRotates {
		return maxCheck
	}
	return checkAfter(size, m.opts.MaxSize)
}

// exceeds reports whether a log of that size is to be rotated.
func (m *Manager) exceeds(size int64) bool {
	return size > m.opts.MaxSize || size == m.opts.MaxSize && !m.opts.RuntimeRotates
}

// report reports that the log was rotated, or could not be.
func (m *Manager) report(l *log, err error) {
	rec := runtime.Record{Pod: l.ref, Stage: runtime.StageDone, Kind: runtime.KindRotateLog, Container: l.container}
	if err != nil {
		rec.Error = err.Error()
	}
	m.node.Record(rec)
	m.node.Measure(Rotated{err})
}

// reportUnwatched logs that the kernel does not watch a log. What concerns all logs is logged once.
func (m *Manager) reportUnwatched(logger logr.Logger, err error) {
	switch {
	case errors.Is(err, fswatch.ErrClosed): // Run has logged it
	case !errors.Is(err, syscall.ENOSPC):
		logger.Error(err, "The kernel does not report writes to a log: its size is read at intervals",
			"interval", m.opts.Interval)
	case m.firstLimited():
		logger.Error(err, "The kernel does not report writes to this and further logs: their sizes are read at "+
			"intervals", "interval", m.opts.Interval)
	}
}

// firstLimited reports whether this is the first log that is one too many for the kernel.
func (m *Manager) firstLimited() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := !m.limited
	m.limited = true
	return first
}

// watch has the kernel watch the log, and reports whether the log is quiet: it was not written to since it had that
// size. If the error is not nil, the kernel does not watch it.
func (m *Manager) watch(w watcher, l *log, size int64) (quiet bool, err error) {
	if err := w.Add(l.path); err != nil {
		return false, err
	}
	now, err := l.size()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || now != size || l.again {
		l.again = false
		return false, nil
	}
	l.active, l.known = false, size
	return true, nil
}

// sleep waits, and reports whether the log is still to be followed.
func sleep(ctx context.Context, l *log, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-l.ended:
		return false
	case <-timer.C:
		return true
	}
}
