package safefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

var (
	// ErrType means that a path is not that of a regular file.
	ErrType = errors.New("not a regular file")
	// ErrTooLarge means that a file is larger than the limit.
	ErrTooLarge = errors.New("larger than the limit")
)

// Open opens a regular file for reading. It fails with [ErrType] if the path is that of
// anything else, and with [syscall.ELOOP] if it is that of a symbolic link. Links in the
// directories above are followed.
func Open(path string) (*os.File, error) { return open(path, os.O_RDONLY, false) }

// OpenReadWrite is [Open] for reading and writing. It neither makes nor truncates the
// file.
func OpenReadWrite(path string) (*os.File, error) { return open(path, os.O_RDWR, false) }

// OpenAppend is [Open] for writing at the end.
func OpenAppend(path string) (*os.File, error) { return open(path, os.O_WRONLY|os.O_APPEND, false) }

// ReadFile returns the content of a regular file of the host, to which the path may be a
// symbolic link. It fails with [ErrTooLarge] if the file has more than limit bytes.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := openHost(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, _, err := readAll(f, path, limit)
	return data, err
}

// openHost opens a regular file of the host, to which the path may be a symbolic link.
func openHost(path string) (*os.File, error) {
	f, err := open(path, os.O_RDONLY, true)
	if errors.Is(err, ErrType) {
		err = &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return f, err
}

// ReadFileIn returns the content of a regular file below the directory, to which the name,
// a relative path, leads. Symbolic links are followed unless they lead out of the directory.
// It fails with [ErrType] and [ErrTooLarge] as ReadFile does. Others may write to the
// directory.
func ReadFileIn(dir, name string, limit int64) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := OpenIn(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, _, err := readAll(f, name, limit)
	return data, err
}

// readAll reads the file, of which path is the name in errors. Of one that is too large it reads nothing, or what grows
// meanwhile.
func readAll(f *os.File, path string, limit int64) ([]byte, fs.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	var buf bytes.Buffer
	if info.Size() <= limit {
		buf.Grow(int(info.Size()) + bytes.MinRead)
		_, err = buf.ReadFrom(io.LimitReader(f, limit+1)) // one more shows that it is too large
	}
	if err != nil {
		return nil, nil, err
	}
	if info.Size() > limit || int64(buf.Len()) > limit {
		return nil, nil, fmt.Errorf("%s: %w of %d bytes", path, ErrTooLarge, limit)
	}
	return buf.Bytes(), info, nil
}

// checkType returns the error for a file that is not to be opened.
func checkType(path string, mode fs.FileMode) error {
	switch {
	case mode.IsRegular():
		return nil
	case mode.Type() == fs.ModeSymlink:
		return &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
	default:
		return fmt.Errorf("%w, but %s", ErrType, mode.Type())
	}
}
