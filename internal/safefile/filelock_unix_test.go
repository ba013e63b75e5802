//go:build unix

package safefile_test

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// holdEnv makes this binary a process that holds the lock of the file that it names.
const holdEnv = "FILELOCK_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdEnv); path != "" {
		if _, err := safefile.Lock(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
		select {} // until it is killed
	}
	goleak.VerifyTestMain(m)
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := safefile.Lock(path)
	require.NoError(t, err)
	st, err := f.Stat()
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), st.Mode().Perm())

	_, err = safefile.Lock(path)
	require.ErrorIs(t, err, safefile.ErrLocked)
	assert.EqualError(t, err, path+": locked already, by this process or another one")

	safefile.Unlock(f)
	f, err = safefile.Lock(path)
	require.NoError(t, err, "the file stays, the lock does not")
	safefile.Unlock(f)
}

// The lock of a process that was killed ends soon after it.
func TestLockSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "lock")
		held, err := safefile.LockSoon(t.Context(), path)
		require.NoError(t, err)
		began := time.Now()
		_, err = safefile.LockSoon(t.Context(), path)
		require.ErrorIs(t, err, safefile.ErrLocked)
		assert.Equal(t, 2*time.Second, time.Since(began))

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = safefile.LockSoon(ended, path)
		require.ErrorIs(t, err, safefile.ErrLocked)
		assert.Equal(t, 2*time.Second, time.Since(began), "it waits no longer than its context")

		time.AfterFunc(1900*time.Millisecond, func() { safefile.Unlock(held) })
		f, err := safefile.LockSoon(t.Context(), path)
		require.NoError(t, err)
		safefile.Unlock(f)
	})
}

// Who can open the file can hold the lock.
func TestOtherUsersCannotOpenTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	f, err := safefile.Lock(path)
	require.NoError(t, err)
	defer safefile.Unlock(f)
	st, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), st.Mode().Perm())
}

func TestWhatIsNoLockFile(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(victim, link))
	_, err := safefile.Lock(link)
	require.Error(t, err)
	assert.NoFileExists(t, victim, "links are not followed")

	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	_, err = safefile.Lock(fifo)
	require.ErrorContains(t, err, "is not a regular file")

	_, err = safefile.Lock(dir)
	require.Error(t, err)

	if os.Geteuid() != 0 {
		t.Skip("needs root: a file of another user")
	}
	foreign := filepath.Join(dir, "foreign")
	require.NoError(t, os.WriteFile(foreign, nil, 0o600))
	require.NoError(t, os.Chown(foreign, 65534, 65534))
	_, err = safefile.Lock(foreign)
	require.ErrorContains(t, err, "lock file "+foreign+" belongs to user 65534, not to user 0 of this process")
}

func TestWhatCannotBeOpened(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := safefile.Lock(filepath.Join(missing, "lock"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.NotErrorIs(t, err, safefile.ErrLocked)
}

func TestTheLockEndsWithTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", line)
	_, err = safefile.Lock(path)
	require.ErrorIs(t, err, safefile.ErrLocked)

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	f, err := safefile.Lock(path)
	require.NoError(t, err)
	safefile.Unlock(f)
}

// A file that a child inherits is locked until the child has ended.
func TestInherited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := safefile.Lock(path)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	cmd.ExtraFiles = []*os.File{f}
	require.NoError(t, cmd.Start())
	require.NoError(t, f.Close())
	_, err = safefile.Lock(path)
	require.ErrorIs(t, err, safefile.ErrLocked)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	f, err = safefile.Lock(path)
	require.NoError(t, err)
	safefile.Unlock(f)
}
