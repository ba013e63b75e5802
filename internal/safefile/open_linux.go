package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// open looks at the file with a descriptor that does not open it, and then opens what it
// has looked at.
func open(path string, flag int, follow bool) (*os.File, error) {
	how := unix.O_PATH | unix.O_CLOEXEC
	if !follow {
		how |= unix.O_NOFOLLOW
	}
	at, err := retry(path, how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	seen := os.NewFile(uintptr(at), path)
	defer func() { _ = seen.Close() }()
	return reopen(seen, path, flag)
}

// reopen opens what a descriptor of O_PATH refers to. path is its name in errors.
func reopen(seen *os.File, path string, flag int) (*os.File, error) {
	info, err := seen.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkType(path, info.Mode()); err != nil {
		return nil, err
	}
	// O_NONBLOCK fails at once where another process has a lease on the file.
	fd, err := retry("/proc/self/fd/"+strconv.Itoa(int(seen.Fd())), flag|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenIn is [Open] of a name below a directory, and follows links unless they lead out of it. A descriptor of O_PATH is
// that of a link itself if the last element is one, so its target is looked up here.
func OpenIn(root *os.Root, name string) (*os.File, error) {
	at := name
	for range maxLinks {
		seen, err := root.OpenFile(at, unix.O_PATH, 0)
		if err != nil {
			return nil, err
		}
		info, err := seen.Stat()
		if err == nil && info.Mode().Type() != fs.ModeSymlink {
			f, err := reopen(seen, name, os.O_RDONLY)
			_ = seen.Close()
			return f, err
		}
		var target string
		if err == nil {
			target, err = readlink(seen)
		}
		_ = seen.Close()
		switch {
		case err != nil:
			return nil, err
		case filepath.IsAbs(target):
			return nil, &fs.PathError{Op: "open", Path: name, Err: errEscapes}
		}
		// Not cleaned: what ".." means depends on the links before it.
		dir, _ := path.Split(strings.TrimRight(at, "/"))
		at = dir + target
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// errEscapes has the text of package os for a path that leads out of an [os.Root].
var errEscapes = errors.New("path escapes from parent")

func readlink(f *os.File) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", buf)
	if err != nil {
		return "", fmt.Errorf("readlink %s: %w", f.Name(), err)
	}
	return string(buf[:n]), nil
}

// retry opens a path, again if a signal interrupts that.
func retry(path string, flags int) (fd int, err error) {
	for {
		if fd, err = unix.Open(path, flags, 0); err != unix.EINTR {
			return fd, err
		}
	}
}
