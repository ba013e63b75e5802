package regular

import (
	"io/fs"
	"os"
	"strconv"

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
	info, err := seen.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkType(path, info.Mode()); err != nil {
		return nil, err
	}
	// O_NONBLOCK fails at once where another process has a lease on the file.
	fd, err := retry("/proc/self/fd/"+strconv.Itoa(at), flag|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// retry opens a path, again if a signal interrupts that.
func retry(path string, flags int) (fd int, err error) {
	for {
		if fd, err = unix.Open(path, flags, 0); err != unix.EINTR {
			return fd, err
		}
	}
}
