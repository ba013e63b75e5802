package volume

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// hostile renames what is in a volume until the test ends, as a container does that has the volume as its root.
func hostile(t *testing.T, vol string, pairs ...[2]string) {
	root, err := os.OpenFile(vol, unix.O_PATH, 0)
	require.NoError(t, err)
	parent := func(path string) int {
		fd, err := unix.Openat2(int(root.Fd()), filepath.Dir(path), &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_IN_ROOT})
		if err != nil {
			return -1
		}
		return fd
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			p := pairs[i%len(pairs)]
			from, to := parent(p[0]), parent(p[1])
			_ = unix.Renameat2(from, filepath.Base(p[0]), to, filepath.Base(p[1]), unix.RENAME_EXCHANGE)
			_ = unix.Close(from)
			_ = unix.Close(to)
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-ended
		_ = root.Close()
	})
}

// A container renames directories of a volume and swaps them for links all the time, while sub-paths of the volume are
// prepared for another container. What is opened, made, given a mode and mounted is in the volume, and renames
// elsewhere prevent nothing.
func TestSubPathUnderRenames(t *testing.T) {
	base := t.TempDir()
	vol, outside := filepath.Join(base, "vol"), filepath.Join(base, "outside")
	require.NoError(t, os.MkdirAll(filepath.Join(outside, "b/c"), 0o700))
	for _, dir := range []string{"a/b/c", "d/e/f", "still/in"} {
		require.NoError(t, os.MkdirAll(filepath.Join(vol, dir), 0o755))
	}
	for _, file := range []string{"x", "y"} {
		require.NoError(t, os.WriteFile(filepath.Join(vol, file), nil, 0o600))
	}
	for name, target := range map[string]string{"out": outside, "up": "../outside", "abs": vol + "/a/../../outside",
		"in": "a", "back": strings.Repeat("still/in/../../", 60) + "still"} {
		require.NoError(t, os.Symlink(target, filepath.Join(vol, name)))
	}
	var forbidden []os.FileInfo
	for _, dir := range []string{base, outside, outside + "/b", outside + "/b/c"} {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		forbidden = append(forbidden, info)
	}
	unfinished := filepath.Join(outside, "b")
	require.NoError(t, os.Chmod(unfinished, os.ModeSticky))
	t.Cleanup(func() { assert.NoError(t, os.Chmod(unfinished, 0o700)) }) // so that it can be removed
	check := func(info os.FileInfo, err error) {
		require.NoError(t, err)
		for _, f := range forbidden {
			require.False(t, os.SameFile(f, info), "%s is outside", f.Name())
		}
	}
	hostile(t, vol, [2]string{"a", "out"}, [2]string{"a/b", "up"}, [2]string{"d", "abs"})
	hostile(t, vol, [2]string{"a/b/c", "d/e"}, [2]string{"in", "up"}, [2]string{"d/e/f", "a/b"},
		[2]string{"a/b", "out"})
	hostile(t, vol, [2]string{"x", "y"})

	m, err := New(Options{})
	require.NoError(t, err)
	podDir, opened, mounted := t.TempDir(), 0, 0
	defer func() { assert.NoError(t, m.Remove(context.WithoutCancel(t.Context()), runtime.PodRef{}, podDir)) }()
	paths := []string{"a/b/c", "in/b/c", "d/e/f/g", "up/b/c", "out/b/c", "a/b/new", "out/new/x", "abs/b"}
	for end, i := time.Now().Add(500*time.Millisecond), 0; time.Now().Before(end); i++ {
		path := paths[i%len(paths)]
		for _, open := range []func(*os.File, string) (*os.File, error){openBeneath, walkBeneath} {
			root, err := os.OpenFile(vol, unix.O_PATH|unix.O_DIRECTORY, 0)
			require.NoError(t, err)
			if f, err := makeBeneath(root, path, open, nil); err == nil {
				opened++
				check(f.Stat())
				require.NoError(t, f.Close())
			}
			if i%len(paths) == 0 {
				f, err := open(root, "back/in") // the container does not rename it
				require.NoError(t, err)
				require.NoError(t, f.Close())
			}
			require.NoError(t, root.Close())
		}
		if os.Getuid() != 0 { // mounting needs root
			continue
		}
		at, err := m.SubPath(t.Context(), runtime.SubPath{Container: "c", VolumeName: "v",
			Volume: runtime.Volume{HostPath: vol}, Path: path, Dir: podDir})
		if err == nil {
			mounted++
			check(os.Stat(at))
		}
	}
	assert.NotZero(t, opened)
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "made outside")
	info, err := os.Stat(filepath.Join(outside, "b"))
	require.NoError(t, err)
	assert.Equal(t, os.ModeDir|os.ModeSticky, info.Mode(), "of another mode")
}
