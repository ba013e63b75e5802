package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

// dir is the directory of a log. Names in it are relative to Options.Dir, which no link leads out of.
type dir struct {
	*os.Root
	rel  string // the directory, relative to the root
	base string // the name of the log
}

// below reports whether the log is below Options.Dir.
func (m *Manager) below(l *log) bool {
	return strings.HasPrefix(l.path, m.opts.Dir+string(filepath.Separator))
}

// open opens the directory of a log below Options.Dir.
func (m *Manager) open(l *log) (*dir, error) {
	root, err := os.OpenRoot(m.opts.Dir)
	if err != nil {
		return nil, err
	}
	rel := l.path[len(m.opts.Dir)+1:]
	return &dir{Root: root, rel: filepath.Dir(rel), base: filepath.Base(rel)}, nil
}

func (d *dir) at(name string) string { return filepath.Join(d.rel, name) }

// list returns the rotated files. The caller holds log.files.
func (d *dir) list() (all []crilog.Rotated, leftovers []string, err error) {
	f, err := d.Root.Open(d.rel)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, nil, err
	}
	all, leftovers = crilog.FindRotated(d.base, names)
	if n := len(all); n > 0 && d.isLog(all[n-1]) {
		if err := d.Remove(d.at(all[n-1].Name)); err != nil {
			return nil, nil, err
		}
		all = all[:n-1]
	}
	return all, leftovers, nil
}

// isLog reports whether the file is another name of the log: an agent was killed while it gave the log its name back.
func (d *dir) isLog(r crilog.Rotated) bool {
	if r.Compressed {
		return false
	}
	rotated, err := d.Lstat(d.at(r.Name))
	log, logErr := d.Lstat(d.at(d.base))
	return err == nil && logErr == nil && os.SameFile(rotated, log)
}

// rotate renames the log, has the runtime open a new one, and removes the oldest files. If there is no log, an agent
// was killed after it had renamed it.
func (m *Manager) rotate(ctx context.Context, l *log) error {
	d, err := m.open(l)
	if err != nil {
		return err
	}
	defer d.Close()
	l.files.Lock()
	all, _, err := d.list()
	if err != nil {
		l.files.Unlock()
		return err
	}
	last := ""
	if len(all) > 0 {
		last = all[len(all)-1].Name
	}
	next := crilog.NextRotated(d.base, last, time.Now())
	for {
		if _, err := d.Lstat(d.at(next)); err != nil {
			break
		}
		next = crilog.NextRotated(d.base, next, time.Now()) // the runtime has rotated it as well
	}
	err = d.Rename(d.at(d.base), d.at(next))
	l.files.Unlock()
	renamed := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.rt.ReopenContainerLog(ctx, l.id); err != nil {
		if !renamed || d.back(next) {
			return err
		}
		m.log.V(2).Info("The runtime has failed to open a new log, but has made its file", "pod", l.ref,
			"container", l.container, "error", err.Error())
	}
	return m.trim(d, l)
}

// back gives the log its name back, and reports whether it did: the runtime may have made a new log, although its
// answer was an error.
func (d *dir) back(rotated string) bool {
	// A link replaces no file, as a rename would.
	if err := d.Link(d.at(rotated), d.at(d.base)); errors.Is(err, fs.ErrExist) {
		return false
	} else if err != nil { // the file system has no links
		return d.Rename(d.at(rotated), d.at(d.base)) == nil
	}
	_ = d.Remove(d.at(rotated)) // if it stays, list removes it
	return true
}

// trim removes the oldest rotated files.
func (m *Manager) trim(d *dir, l *log) error {
	l.files.Lock()
	defer l.files.Unlock()
	all, _, err := d.list()
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range excess(all, m.opts.MaxFiles) {
		if err := d.Remove(d.at(r.File())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// compress compresses rotated files in a goroutine of its own, unless one does already.
func (m *Manager) compress(ctx context.Context, l *log, workers *sync.WaitGroup, logger logr.Logger) {
	l.files.Lock()
	defer l.files.Unlock()
	if l.more = true; l.compressing {
		return
	}
	l.compressing = true
	workers.Go(func() {
		for l.hasMore() {
			err := m.compressAll(ctx, l)
			if err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
				// the directory of the logs was removed meanwhile
				m.node.Measure(Compressed{err})
				logger.Error(err, "A rotated log cannot be compressed; it is tried again with the next rotation")
			}
		}
	})
}

// hasMore reports whether there may be files to compress. If not, the goroutine ends.
func (l *log) hasMore() bool {
	l.files.Lock()
	defer l.files.Unlock()
	l.compressing = l.more
	l.more = false
	return l.compressing
}

// compressAll removes what an interrupted compression has left, and compresses all rotated files but the newest.
func (m *Manager) compressAll(ctx context.Context, l *log) error {
	d, err := m.open(l)
	if err != nil {
		return err
	}
	defer d.Close()
	l.files.Lock()
	all, leftovers, err := d.list()
	l.files.Unlock()
	if err != nil {
		return err
	}
	for _, name := range leftovers {
		if err := d.Remove(d.at(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, r := range uncompressed(all) {
		if err := m.workers.Acquire(ctx, 1); err != nil {
			return err
		}
		err := d.compress(ctx, l, r.Name)
		m.workers.Release(1)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its directory was removed meanwhile; the other files say so, too
		}
		if err != nil {
			return fmt.Errorf("compressing %s: %w", r.Name, err)
		}
		m.node.Measure(Compressed{nil})
	}
	return m.trim(d, l)
}

// compress replaces a file by its compressed copy, which is complete, and on the disk, when the file is removed.
func (d *dir) compress(ctx context.Context, l *log, name string) (err error) {
	src, err := safefile.OpenIn(d.Root, d.at(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was the oldest one
	}
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	tmp := d.at(name + crilog.Temporary)
	dst, err := d.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() { _ = d.Remove(tmp) }()
	err = func() error {
		zip := gzip.NewWriter(dst)
		if _, err := io.Copy(zip, interruptible{ctx, src}); err != nil {
			return err
		}
		return errors.Join(zip.Close(), dst.Sync())
	}()
	if err := errors.Join(err, dst.Close()); err != nil {
		return err
	}
	if err := d.Chtimes(tmp, info.ModTime(), info.ModTime()); err != nil { // so that readers know how old its lines are
		return err
	}
	l.files.Lock()
	defer l.files.Unlock()
	if now, err := d.Lstat(d.at(name)); err != nil || !os.SameFile(now, info) {
		return nil // it was the oldest one
	}
	if err := d.Rename(tmp, d.at(name+crilog.Compressed)); err != nil {
		return err
	}
	if err := d.Remove(d.at(name)); !errors.Is(err, fs.ErrNotExist) { // a runtime that rotates removes the oldest one
		return err
	}
	return nil
}

// interruptible is a reader that fails when ctx has ended.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}
