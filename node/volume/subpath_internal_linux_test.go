package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestBeneath compares the walk for old kernels with openat2.
func TestBeneath(t *testing.T) {
	vol := filepath.Join(t.TempDir(), "vol")
	require.NoError(t, os.MkdirAll(filepath.Join(vol, "in", "deep"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(vol, "in", "f"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(vol, "..", "secret"), nil, 0o600))
	require.NoError(t, unix.Mkfifo(filepath.Join(vol, "fifo"), 0o600))
	for name, target := range map[string]string{
		"down": "in", "in/up": "../in", "in/deep/far": "../../../secret", "abs": vol, "abs-in": vol + "/in/../in//f", "in/deep/abs-up": vol + "/in/../../secret", "abs-beside": vol + "2",
		"abs-link": filepath.Join(filepath.Dir(vol), "link", "in"), "abs-loop": vol + "/abs-loop", "abs-none": vol + "/none", "loop": "loop", "dangling": "none",
		"out": "../vol", "slashes": ".//in//", "self": "/proc/self/fd/1", "in/deep/back": "../../in/./f",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(vol, name)))
	}
	require.NoError(t, os.Mkdir(vol+"2", 0o755))
	require.NoError(t, os.Symlink(vol, filepath.Join(filepath.Dir(vol), "link")))
	root, err := os.OpenFile(vol, unix.O_PATH, 0)
	require.NoError(t, err)
	defer func() { _ = root.Close() }()
	for path, want := range map[string]error{
		".": nil, "in": nil, "in/f": nil, "down/deep": nil, "down/up/f": nil, "in/deep/back": nil, "slashes": nil, "fifo": nil,
		"in/../in/f": nil, "down/../in": nil, "in/none": unix.ENOENT, "dangling": unix.ENOENT, "in/f/x": unix.ENOTDIR, "loop": unix.ELOOP,
		"abs": nil, "abs/in": nil, "abs-in": nil, "down/../abs/in/deep/../f": nil, "abs/..": unix.EXDEV, "in/deep/abs-up": unix.EXDEV, "abs-beside": unix.EXDEV,
		"abs-link": unix.EXDEV, "abs-loop": unix.ELOOP, "abs-none": unix.ENOENT, "out": unix.EXDEV, "..": unix.EXDEV, "in/../..": unix.EXDEV, "in/deep/far": unix.EXDEV, "self": unix.EXDEV,
		strings.Repeat("in/../", 300) + "in": nil, strings.Repeat("down/../", 50) + "in": unix.ELOOP,
	} {
		for name, open := range map[string]func(*os.File, string) (*os.File,
			error){"openat2": openBeneath, "walk": walkBeneath} {
			f, err := open(root, path)
			if want != nil {
				assert.ErrorIs(t, err, want, "%s: %s", name, path)
				continue
			}
			if !assert.NoError(t, err, "%s: %s", name, path) {
				continue
			}
			have, err := f.Stat()
			require.NoError(t, err)
			is, err := os.Stat(filepath.Join(vol, path))
			require.NoError(t, err)
			assert.True(t, os.SameFile(is, have), "%s: %s", name, path)
			flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
			require.NoError(t, err)
			assert.NotZero(t, flags&unix.O_PATH, "%s: %s", name, path)
			require.NoError(t, f.Close())
		}
	}
	_, err = walkBeneath(root, strings.Repeat("in/", maxDepth+1))
	assert.Error(t, err)
	for name, open := range map[string]func(*os.File, string) (*os.File,
		error){"openat2": openBeneath, "walk": walkBeneath} {
		f, err := makeBeneath(root, "made/by/"+name, open, nil)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		assert.DirExists(t, filepath.Join(vol, "made/by", name))
		for _, path := range []string{"in/deep/far/x", "dangling/x", "abs-none/x", "in/deep/abs-up/x",
			"abs-beside/x", "out/x"} {
			_, err = makeBeneath(root, path, open, nil)
			assert.Error(t, err, "%s: %s", name, path)
		}
	}
	assert.NoDirExists(t, filepath.Join(vol, "none"))
}

func FuzzBeneath(f *testing.F) {
	f.Add("a/l/../f", "../a/f")
	f.Add("l", "..")
	f.Fuzz(func(t *testing.T, path, target string) {
		if len(path) > 200 || len(target) > 200 || strings.ContainsRune(path+target, 0) {
			return
		}
		vol := filepath.Join(t.TempDir(), "vol")
		require.NoError(t, os.MkdirAll(filepath.Join(vol, "a", "b"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(vol, "a", "f"), nil, 0o600))
		for _, link := range []string{"l", "a/l"} {
			if os.Symlink(target, filepath.Join(vol, link)) != nil {
				return
			}
		}
		root, err := os.OpenFile(vol, unix.O_PATH, 0)
		require.NoError(t, err)
		defer func() { _ = root.Close() }()
		one, err := openBeneath(root, path)
		two, err2 := walkBeneath(root, path)
		if err == nil {
			defer func() { _ = one.Close() }()
		}
		if err2 == nil {
			defer func() { _ = two.Close() }()
		}
		require.Equal(t, err == nil, err2 == nil, "%v and %v", err, err2)
		if err != nil {
			return
		}
		a, err := one.Stat()
		require.NoError(t, err)
		b, err := two.Stat()
		require.NoError(t, err)
		require.True(t, os.SameFile(a, b))
	})
}
