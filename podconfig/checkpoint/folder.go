package checkpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// Names in a folder. Records end in suffix. Files that end in unfinished are records that
// are being written; those of older versions begin with scratch.
const (
	suffix     = ".checkpoint"
	unfinished = suffix + ".new"
	scratch    = ".new-"
	// hashed is the prefix of the hash of a UID that is not a name itself.
	hashed = "sha256-"
	// maxName is the maximum length of a name in bytes, with room for a suffix.
	maxName = 200
)

// fileOfPod returns the file of a pod. Its name is the UID, or a hash of it if the UID is too
// long, looks like a file of an interrupted write, or looks like a hash.
func fileOfPod(uid types.UID) file {
	name := string(uid)
	if len(name) > maxName || strings.HasPrefix(name, ".") || strings.HasPrefix(name, hashed) {
		name = fmt.Sprintf("%s%x", hashed, sha256.Sum256([]byte(name)))
	}
	return file{name: name}
}

// folder is a directory of records, with any content.
type folder struct {
	path string
	// aside is the directory of unusable files.
	aside string
	// reader reads the directory. It has a time limit, since a user names the directory.
	reader *safefile.Reader
	// readOnly means that nothing is set aside or removed.
	readOnly bool
}

// write writes a record atomically. The directory must exist. The record survives a
// power loss after the next sync.
func (f folder) write(name string, record []byte) error {
	return safefile.WriteSync(f.file(name), record)
}

// remove removes a record. That survives a power loss after the next sync. A record
// that does not exist is no error.
func (f folder) remove(name string) error {
	if err := os.Remove(f.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sync makes previous writes and removals survive a power loss.
func (f folder) sync() error { return safefile.SyncDir(f.path) }

// make creates the directory if it does not exist, and syncs it.
func (f folder) make() error {
	if _, err := os.Stat(f.path); err == nil {
		return nil
	}
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return err
	}
	dir := filepath.Dir(f.path)
	return errors.Join(safefile.SyncDir(dir), safefile.SyncDir(filepath.Dir(dir)))
}

func (f folder) file(name string) string { return filepath.Join(f.path, name+suffix) }

// read calls use for each record, in the order of the names, with the time when it was
// written. It sets aside files that are no records and records for which use returns an
// error. It leaves files that cannot be read now or not without their key. problem
// receives both. Files of interrupted writes are removed.
func (f folder) read(ctx context.Context, use func(name string, record []byte, written time.Time) error,
	problem func(path string, aside bool, err error)) error {
	entries, err := f.reader.ReadDir(ctx, f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(f.path, e.Name())
		if strings.HasSuffix(e.Name(), unfinished) || strings.HasPrefix(e.Name(), scratch) {
			if !f.readOnly {
				_ = os.Remove(path)
			}
			continue
		}
		name, isRecord := strings.CutSuffix(e.Name(), suffix)
		err := errForeign
		if isRecord {
			var (
				record  []byte
				written time.Time
			)
			if record, written, err = f.readRecord(ctx, path); err == nil {
				err = use(name, record, written)
			}
		}
		switch {
		case errors.Is(err, safefile.ErrNoAnswer), err != nil && ctx.Err() != nil:
			// neither do the others have an answer
			problem(path, false, err)
			return nil
		case errors.Is(err, errUnread), errors.Is(err, errLocked), err != nil && f.readOnly:
			problem(path, false, err)
		case errors.Is(err, errPlain):
			problem(path, false, errors.Join(err, os.Remove(path)))
		case err != nil:
			problem(path, true, errors.Join(err, f.setAside(path)))
		}
	}
	return nil
}

// Bounds of the directory of unusable files. The oldest are removed, but never the newest.
const (
	maxAside      = 100
	maxAsideBytes = 64 << 20
)

// setAside moves a file to the directory of unusable files.
func (f folder) setAside(path string) error {
	if err := os.MkdirAll(f.aside, 0o700); err != nil {
		return fmt.Errorf("setting it aside: %w", err)
	}
	base := filepath.Base(path)
	to := filepath.Join(f.aside, fmt.Sprintf("%s.%d", base[:min(len(base), maxName)], time.Now().UnixNano()))
	if err := os.Rename(path, to); err != nil {
		return fmt.Errorf("setting it aside: %w", err)
	}
	if err := f.pruneAside(); err != nil {
		return fmt.Errorf("removing older files that were set aside: %w", err)
	}
	return nil
}

// purgeAside removes those of the unusable files that are records of objects, unless they begin as
// encrypted ones. It returns their paths.
func (f folder) purgeAside() (removed []string, err error) {
	entries, err := os.ReadDir(f.aside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range entries {
		name, _, isRecord := strings.Cut(e.Name(), suffix+".")
		if !isRecord || !isHash(name) || !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(f.aside, e.Name())
		start, err := startOf(path)
		if err == nil && mayBeReadable(start) {
			if err = os.Remove(path); err == nil {
				removed = append(removed, path)
			}
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// startOf returns the first bytes of a file.
func startOf(path string) ([]byte, error) {
	f, err := safefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxHeader))
}

// pruneAside removes the oldest of the unusable files as long as there are too many.
func (f folder) pruneAside() error {
	entries, err := os.ReadDir(f.aside)
	if err != nil {
		return err
	}
	since := func(e fs.DirEntry) int64 {
		n, _ := strconv.ParseInt(strings.TrimPrefix(filepath.Ext(e.Name()), "."), 10, 64)
		return n
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(since(b), since(a)) })
	var errs []error
	bytes := int64(0)
	for i, e := range entries {
		if info, err := e.Info(); err == nil {
			bytes += info.Size()
		}
		if i > 0 && (i >= maxAside || bytes > maxAsideBytes) {
			errs = append(errs, os.RemoveAll(filepath.Join(f.aside, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// readRecord is the function readRecord with a time limit.
func (f folder) readRecord(ctx context.Context, path string) ([]byte, time.Time, error) {
	type result struct {
		record  []byte
		written time.Time
		err     error
	}
	r, err := safefile.Call(ctx, f.reader, path, func() (r result, _ error) {
		r.record, r.written, r.err = readRecord(path)
		return r, nil
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%w: %w", errUnread, err)
	}
	return r.record, r.written, r.err
}

// readRecord reads a file that only the agent's user can have written. It returns the
// time of the last write too.
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
	file, err := safefile.Open(path)
	if err != nil {
		return nil, never, fmt.Errorf("%w: %w", errUnread, err)
	}
	defer file.Close()
	// It must be the file that was checked, not one that has replaced it since.
	opened, err := file.Stat()
	if err != nil {
		return nil, never, fmt.Errorf("%w: %w", errUnread, err)
	}
	if !os.SameFile(info, opened) {
		return nil, never, errForeign
	}
	if opened.Size() > maxRecord {
		return nil, never, errTooLarge
	}
	record, err := io.ReadAll(io.LimitReader(file, maxRecord+1))
	if err != nil {
		return nil, never, fmt.Errorf("%w: %w", errUnread, err)
	}
	if len(record) > maxRecord {
		return nil, never, errTooLarge
	}
	return record, info.ModTime(), nil
}
