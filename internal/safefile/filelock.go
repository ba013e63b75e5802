package safefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// ErrLocked means that the file is locked, by another process or by another open
// file of this one.
var ErrLocked = errors.New("locked already, by this process or another one")

// Lock locks the file, which is made with mode 0600 if it does not exist. It does
// not wait: the error wraps [ErrLocked] if the file is locked already. The caller
// ends the lock with [Unlock].
//
// Any process that can open a file can hold its lock. So the file must be a regular file
// of this user, and no symbolic link; the permissions of other users are removed.
//
// A lock belongs to the open file, not to the process: a second Lock in the same process fails as
// well. It ends when the last copy of the open file is closed, which the kernel does when a process
// ends, however it ends. Locks are advisory. They are those of flock(2); on systems without it every
// call succeeds and locks nothing.
//
// If a child process inherits the file, the lock lasts until the child has ended,
// too, and the caller closes the file instead of unlocking it.
func Lock(path string) (*os.File, error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return f, nil
}

const (
	lockWait   = 2 * time.Second       // the maximum time that LockSoon waits
	lockPeriod = 20 * time.Millisecond // the time between two attempts
)

// LockSoon is [Lock] for a lock that is held as long as a process runs. It waits up to 2 seconds, and
// until ctx ends, while the file is locked: the lock of a process that was just killed lasts until the
// kernel has given its memory back and closed its files.
func LockSoon(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		f, err := Lock(path)
		if !errors.Is(err, ErrLocked) || !flow.Sleep(ctx, lockPeriod) {
			return f, err
		}
	}
}

// Unlock ends the lock and closes the file. To close the file is not enough: a
// child that another goroutine has just forked has a copy of it until it executes
// its program.
func Unlock(f *os.File) {
	unlock(f)
	_ = f.Close()
}
