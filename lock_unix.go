//go:build unix

package kubeletkit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockRoot makes sure that one agent uses the root directory. The lock ends with
// the process, however it ends.
func lockRoot(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the root directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the root directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("root directory %s is in use by another agent; stop it, or give this one a directory of its own: %w", dir, err)
		}
		return nil, fmt.Errorf("locking the root directory %s: %w", dir, err)
	}
	return func() { _ = f.Close() }, nil
}

// lockLogs makes sure that one agent removes logs from the directory: each takes
// the logs of the other's pods for those of gone ones. The directory itself is
// locked, so that no file of ours lies in it. One that cannot be opened is left
// alone: it is not there yet, or is not ours to remove from.
func lockLogs(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return func() {}, nil
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		_ = f.Close()
		return nil, fmt.Errorf("pod logs directory %s is in use by another agent, and each would remove the logs of the other's pods; give this one a directory of its own: %w", dir, err)
	}
	return func() { _ = f.Close() }, nil
}
