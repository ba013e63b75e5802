package supervise

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

// rotateRetry is the time until a rotation that has failed is tried again. Meanwhile the log grows.
const rotateRetry = time.Second

// store writes lines to the log, and rotates it before it exceeds its limit. The caller holds the lock.
func (l *logFile) store(lines []byte, now time.Time) {
	for len(lines) > 0 {
		n := len(lines)
		if left := l.limit.MaxSize - l.size; l.limit.MaxSize > 0 && int64(n) > left && !now.Before(l.retry) {
			n = bytes.LastIndexByte(lines[:max(0, left)], '\n') + 1 // whole lines
			if n == 0 && l.size > 0 {
				if l.rotate(now) != nil { // package logs tries, too, and logs its error
					l.retry = now.Add(rotateRetry)
				}
				continue
			}
			if n == 0 {
				n = bytes.IndexByte(lines, '\n') + 1
			}
		}
		l.append(l.f, lines[:n], now)
		lines = lines[n:]
	}
}

// rotate renames the log, opens a new one, and removes the oldest files. The caller holds the lock. Names are those of
// package logs, which compresses the files.
func (l *logFile) rotate(now time.Time) error {
	dir, base := filepath.Split(l.path)
	if !l.isAt(l.path) { // a client has renamed it, and is about to have it opened again
		return l.openLocked()
	}
	for {
		names, err := readNames(dir)
		if err != nil {
			return err
		}
		all, _ := crilog.FindRotated(base, names)
		last := ""
		if len(all) > 0 {
			last = all[len(all)-1].Name
		}
		next := filepath.Join(dir, crilog.NextRotated(base, last, now))
		err = renameNew(l.path, next)
		if errors.Is(err, fs.ErrExist) { // a client rotates, too
			continue
		}
		if err != nil {
			return err
		}
		if err := l.openLocked(); err != nil {
			return errors.Join(err, renameNew(next, l.path))
		}
		// The log and the newest rotated file are not among them.
		for _, old := range all[:max(0, len(all)-max(0, l.limit.MaxFiles-2))] {
			if err := os.Remove(filepath.Join(dir, old.File())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	}
}

// isAt reports whether the path is that of the open file.
func (l *logFile) isAt(path string) bool {
	own, err := l.f.Stat()
	at, atErr := os.Lstat(path)
	return err == nil && atErr == nil && os.SameFile(own, at)
}

func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// renameNew renames a file, and replaces none.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // the file system, or the kernel, cannot do that
		if _, err := os.Lstat(to); err == nil {
			return fs.ErrExist
		}
		return os.Rename(from, to)
	}
	return err
}
