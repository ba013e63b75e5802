//go:build unix

package filelock_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/internal/filelock"
)

// holdEnv makes this binary a process that holds the lock of the file that it names.
const holdEnv = "FILELOCK_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdEnv); path != "" {
		if _, err := filelock.Lock(path); err != nil {
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
	f, err := filelock.Lock(path)
	require.NoError(t, err)
	st, err := f.Stat()
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), st.Mode().Perm())

	_, err = filelock.Lock(path)
	require.ErrorIs(t, err, filelock.ErrLocked)
	assert.EqualError(t, err, path+": locked by another process")

	filelock.Unlock(f)
	f, err = filelock.Lock(path)
	require.NoError(t, err, "the file stays, the lock does not")
	filelock.Unlock(f)
}

func TestLockDir(t *testing.T) {
	dir := t.TempDir()
	f, err := filelock.LockDir(dir)
	require.NoError(t, err)
	_, err = filelock.LockDir(dir)
	require.ErrorIs(t, err, filelock.ErrLocked)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries, "nothing is left in the directory")
	filelock.Unlock(f)
	f, err = filelock.LockDir(dir)
	require.NoError(t, err)
	filelock.Unlock(f)
}

func TestWhatCannotBeOpened(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := filelock.LockDir(missing)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = filelock.Lock(filepath.Join(missing, "lock"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.NotErrorIs(t, err, filelock.ErrLocked)
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
	_, err = filelock.Lock(path)
	require.ErrorIs(t, err, filelock.ErrLocked)

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	f, err := filelock.Lock(path)
	require.NoError(t, err)
	filelock.Unlock(f)
}

// A file that a child inherits is locked until the child has ended.
func TestInherited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := filelock.Lock(path)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	cmd.ExtraFiles = []*os.File{f}
	require.NoError(t, cmd.Start())
	require.NoError(t, f.Close())
	_, err = filelock.Lock(path)
	require.ErrorIs(t, err, filelock.ErrLocked)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	f, err = filelock.Lock(path)
	require.NoError(t, err)
	filelock.Unlock(f)
}
