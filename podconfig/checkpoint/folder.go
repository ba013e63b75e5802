package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Names in a folder: records end in suffix; what begins with scratch is a record
// that was being written.
const (
	suffix  = ".checkpoint"
	scratch = ".new-"
)

// folder is a directory of records. It knows nothing of what is in them.
type folder struct {
	path string
	// aside is where unusable files go.
	aside string
}

// write puts a record there in one step, into a folder that was made. After the next
// sync, the record outlives a loss of power.
func (f folder) write(name string, record []byte) (err error) {
	file, err := os.CreateTemp(f.path, scratch+"*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	_, err = file.Write(record)
	if err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(file.Name(), f.file(name))
	}
	return err
}

// remove takes a record away, for good after the next sync; it is no error if there
// is none.
func (f folder) remove(name string) error {
	if err := os.Remove(f.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sync makes what was written and removed outlive a loss of power.
func (f folder) sync() error { return syncDir(f.path) }

// make makes the directory, if need be, so that it outlives a loss of power.
func (f folder) make() error {
	if _, err := os.Stat(f.path); err == nil {
		return nil
	}
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return err
	}
	dir := filepath.Dir(f.path)
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
}

// syncDir makes what happened in a directory outlive a loss of power.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Some file systems cannot sync a directory and say so.
	if err := dir.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

func (f folder) file(name string) string { return filepath.Join(f.path, name+suffix) }

// read calls use for each record, in the order of their names, with the time when it
// was written. What use returns an error for, and what is no record, is set aside;
// what cannot be read now, or not without its key, is left where it is. problem is
// told of both. Remains of interrupted writes are removed.
func (f folder) read(use func(name string, record []byte, written time.Time) error, problem func(path string, aside bool, err error)) error {
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(f.path, e.Name())
		if strings.HasPrefix(e.Name(), scratch) {
			_ = os.Remove(path)
			continue
		}
		name, isRecord := strings.CutSuffix(e.Name(), suffix)
		err := errForeign
		if isRecord {
			var (
				record  []byte
				written time.Time
			)
			if record, written, err = readRecord(path); err == nil {
				err = use(name, record, written)
			}
		}
		switch {
		case errors.Is(err, errUnread), errors.Is(err, errLocked):
			problem(path, false, err)
		case err != nil:
			problem(path, true, errors.Join(err, f.setAside(path)))
		}
	}
	return nil
}

// setAside moves a file out of the way.
func (f folder) setAside(path string) error {
	if err := os.MkdirAll(f.aside, 0o700); err != nil {
		return fmt.Errorf("setting it aside: %w", err)
	}
	to := filepath.Join(f.aside, fmt.Sprintf("%s.%d", filepath.Base(path), time.Now().UnixNano()))
	if err := os.Rename(path, to); err != nil {
		return fmt.Errorf("setting it aside: %w", err)
	}
	return nil
}

// readRecord reads a file that nobody but us can have written, and tells when it was.
func readRecord(path string) ([]byte, time.Time, error) {
	var never time.Time
	info, err := os.Lstat(path)
	if err != nil {
		return nil, never, fmt.Errorf("%w: %w", errUnread, err)
	}
	if !info.Mode().IsRegular() {
		return nil, never, fmt.Errorf("%w (%s)", errForeign, info.Mode().Type())
	}
	if err := checkOwner(info); err != nil {
		return nil, never, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, never, fmt.Errorf("%w: %w", errUnread, err)
	}
	defer file.Close()
	// The file that was looked at, and not what has taken its place since.
	opened, err := file.Stat()
	if err != nil {
		return nil, never, fmt.Errorf("%w: %w", errUnread, err)
	}
	if !os.SameFile(info, opened) {
		return nil, never, errForeign
	}
	record, err := io.ReadAll(io.LimitReader(file, maxRecord+1))
	if err != nil {
		return nil, never, fmt.Errorf("%w: %w", errUnread, err)
	}
	if len(record) > maxRecord {
		return nil, never, fmt.Errorf("%w (more than %d bytes)", errForeign, maxRecord)
	}
	return record, info.ModTime(), nil
}
