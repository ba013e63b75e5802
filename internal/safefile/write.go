package safefile

import (
	"bufio"
	"errors"
	"os"
	"syscall"
)

const suffix = ".new"

// Write replaces the file in one step by one of mode 0600 with the data: a reader receives the
// old content or the new one, also after the process was killed. After a power loss it may
// receive neither, see [WriteSync]. Calls for one path must not overlap.
//
// The data is written to a file of that path with the suffix ".new". Since the name is always
// the same, a process that is killed again and again leaves one file.
func Write(path string, data []byte) error { return write(path, path+suffix, false, of(data)) }

// WriteSync is [Write] with content that survives a power loss. The name of the file does after a
// call of [SyncDir] for its directory.
func WriteSync(path string, data []byte) error { return write(path, path+suffix, true, of(data)) }

// WriteSyncVia is [WriteSync] by way of the file temp in the same directory, for directories in which another program
// reads files with the suffix ".new".
func WriteSyncVia(temp, path string, data []byte) error { return write(path, temp, true, of(data)) }

// WriteFrom is [Write] of what fill writes. A failed write makes all later ones of the writer fail, and is
// returned, so that fill may ignore errors.
func WriteFrom(path string, fill func(*bufio.Writer)) error {
	return write(path, path+suffix, false, fill)
}

func of(data []byte) func(*bufio.Writer) {
	return func(w *bufio.Writer) { _, _ = w.Write(data) } // Flush returns the error
}

func write(path, temp string, sync bool, fill func(*bufio.Writer)) (err error) {
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriter(f)
	fill(w)
	err = w.Flush()
	if err == nil && sync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// SyncDir makes changes in a directory survive a power loss. It is no error if the file system
// cannot sync directories.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := dir.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}
