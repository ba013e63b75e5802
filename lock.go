package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// LockRoot makes the root directory and locks it, as [Agent.Run] does. It refuses a directory to
// which other users can write: they could plant records of pods and processes. The lock ends with
// unlock, or with the process, however it ends. It is for programs that change the directory while no agent runs.
func LockRoot(ctx context.Context, dir string) (unlock func(), err error) {
	if err := safefile.MakeDir(dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the root directory: %w", err)
	}
	f, err := safefile.LockSoon(ctx, filepath.Join(dir, "lock"))
	if errors.Is(err, safefile.ErrLocked) {
		return nil, fmt.Errorf("root directory %s is in use by another agent; stop it, or give this one a directory of its own: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the root directory: %w", err)
	}
	return func() { safefile.Unlock(f) }, nil
}

// logsLock is the name of the lock file in the pod logs directory. It is there and not in
// the root directory because the agents that share the logs have root directories of their
// own. The directory itself is not locked: every user that can read it could hold the lock.
const logsLock = ".kubeletkit.lock"

// lockLogs makes the pod logs directory and locks it for this agent: of two agents
// with one directory, each would take the logs of the other's pods for those of pods
// that are gone, and remove them. If this user may not make the directory or write to it,
// the agent cannot remove anything from it, and goes on without a lock.
func lockLogs(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil && !notOurs(err) {
		return nil, fmt.Errorf("making the pod logs directory: %w", err)
	}
	f, err := safefile.LockSoon(ctx, filepath.Join(dir, logsLock))
	switch {
	case errors.Is(err, safefile.ErrLocked):
		return nil, fmt.Errorf("pod logs directory %s is in use by another agent, and each would remove the logs of the other's pods; give this one a directory of its own: %w", dir, err)
	case notOurs(err), errors.Is(err, fs.ErrNotExist): // it could not be made
		return func() {}, nil
	case err != nil:
		return nil, fmt.Errorf("locking the pod logs directory: %w", err)
	}
	return func() { safefile.Unlock(f) }, nil
}

// notOurs reports whether the error means that this user may not write there.
func notOurs(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}
