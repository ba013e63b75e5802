//go:build unix

package agent_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func newWithLogs(t *testing.T, logs string) *kubeletkit.Agent {
	t.Helper()
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName: "node", RootDir: t.TempDir(), Runtime: fake.New(fake.Options{}),
		Host: &runtime.Host{PodLogsDir: logs},
	})
	require.NoError(t, err)
	return agent
}

// Of two agents with one logs directory each would remove the logs of the other's
// pods, also if the directory does not exist when they start.
func TestPodLogsDirectoryIsForOneAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := filepath.Join(t.TempDir(), "not", "there", "yet")
		ctx, cancel := context.WithCancel(t.Context())
		first, done := newWithLogs(t, logs), make(chan error, 1)
		go func() { done <- first.Run(ctx) }()
		synctest.Wait()
		st, err := os.Stat(logs)
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o755), st.Mode().Perm()|0o055, "0755, as kubelet makes it, but for the umask")

		err = newWithLogs(t, logs).Run(t.Context())
		require.ErrorContains(t, err, "pod logs directory "+logs+" is in use by another agent")

		cancel()
		require.NoError(t, <-done)
		ctx, cancel = context.WithCancel(t.Context())
		go func() { done <- newWithLogs(t, logs).Run(ctx) }()
		synctest.Wait()
		cancel()
		require.NoError(t, <-done, "the lock has ended with the agent")
	})
}

// A local user that can read the directory must not keep the agent from starting.
func TestLockOnThePodLogsDirectoryItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := t.TempDir()
		f, err := os.Open(logs)
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- newWithLogs(t, logs).Run(ctx) }()
		synctest.Wait()
		st, err := os.Stat(filepath.Join(logs, ".kubeletkit.lock"))
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o600), st.Mode().Perm(), "other users cannot open what is locked")
		cancel()
		require.NoError(t, <-done)
	})
}

// In a directory that other users can write to, they could plant records of processes that
// the agent ends.
func TestRootDirectoryOfOthers(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName: "node", RootDir: dir, Runtime: fake.New(fake.Options{}), Host: &runtime.Host{},
	})
	require.NoError(t, err)
	require.ErrorContains(t, agent.Run(t.Context()), dir+" has mode 0777 and can be written by every user")
}

func TestPodLogsDirectoryThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, newWithLogs(t, filepath.Join(file, "logs")).Run(t.Context()),
		"making the pod logs directory")
	require.ErrorContains(t, newWithLogs(t, file).Run(t.Context()), "making the pod logs directory")
}
