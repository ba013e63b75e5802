package volume

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
)

// asNobody calls f as a user without capabilities for files, who owns the directory.
func asNobody(t *testing.T, dir string, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	for _, path := range []string{filepath.Dir(dir), dir} { // the first is of the test alone
		require.NoError(t, os.Chown(path, nobody, nobody))
	}
	runtime.LockOSThread() // it is the user of one thread
	defer runtime.UnlockOSThread()
	defer func() { _ = unix.Setfsuid(0) }()
	_ = unix.Setfsuid(nobody) // the capabilities go with it, see capabilities(7)
	now, _ := unix.SetfsuidRetUid(-1)
	require.Equal(t, nobody, now)
	f()
}

// An agent that is not root removes directories whose modes forbid that: a container of the same
// user has made them, as Go makes its module cache.
func TestDirectoriesThatForbidTheirRemoval(t *testing.T) {
	for _, mode := range []os.FileMode{0o555, 0o444, 0o666, 0o333, 0o111, 0} {
		t.Run(strconv.FormatInt(int64(mode), 8), func(t *testing.T) {
			target := t.TempDir()
			require.NoError(t, os.Chmod(target, 0o555))
			dir := t.TempDir()
			asNobody(t, dir, func() {
				for _, top := range []string{"full", "empty"} {
					vol := filepath.Join(dir, top)
					forbidden := []string{vol, filepath.Join(vol, "a"), filepath.Join(vol, "a", "b"),
						filepath.Join(vol, "c")}
					for _, path := range forbidden {
						require.NoError(t, os.Mkdir(path, 0o700))
						if top == "full" {
							require.NoError(t, os.WriteFile(filepath.Join(path, "f"), nil, 0o400))
							require.NoError(t, os.Symlink(target, filepath.Join(path, "link")))
						}
					}
					for i := len(forbidden) - 1; i >= 0; i-- {
						require.NoError(t, os.Chmod(forbidden[i], mode))
					}
					require.NoError(t, removeAll(t.Context(), vol))
					assert.NoDirExists(t, vol)
				}
			})
			info, err := os.Stat(target)
			require.NoError(t, err)
			assert.Equal(t, os.ModeDir|0o555, info.Mode())
		})
	}
}

// Such a directory can also be deeper than a walk goes.
func TestDeepDirectoriesThatForbidTheirRemoval(t *testing.T) {
	dir := testenv.MemoryDir(t)
	asNobody(t, dir, func() {
		vol := filepath.Join(dir, "v")
		require.NoError(t, os.Mkdir(vol, 0o700))
		fd, err := unix.Open(vol, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		defer func() { _ = unix.Close(fd) }()
		for range maxTreeDepth + 10 {
			require.NoError(t, unix.Mkdirat(fd, "d", 0o700))
			next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			require.NoError(t, unix.Fchmod(fd, 0o555))
			_ = unix.Close(fd)
			fd = next
		}
		require.NoError(t, removeAll(t.Context(), vol))
		assert.NoDirExists(t, vol)
	})
}
