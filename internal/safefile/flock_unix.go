//go:build unix

package safefile

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openLock opens a lock file, and makes it if it does not exist. O_NONBLOCK is for a FIFO
// in its place.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := secure(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock file %s %w", path, err)
	}
	return f, nil
}

// secure makes sure that other users cannot open the file.
func secure(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch own := os.Geteuid(); {
	case !info.Mode().IsRegular():
		return fmt.Errorf("is not a regular file (%s)", info.Mode().Type())
	case ok && int(stat.Uid) != own:
		return fmt.Errorf("belongs to user %d, not to user %d of this process", stat.Uid, own)
	case info.Mode().Perm()&0o077 != 0:
		return f.Chmod(0o600)
	}
	return nil
}

func tryLock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		case errors.Is(err, unix.EINTR):
		default:
			return fmt.Errorf("flock: %w", err)
		}
	}
}

func unlock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
