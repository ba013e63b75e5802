package volume

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// privateMounts is set in a process that has a mount namespace of its own.
const privateMounts = "KUBELETKIT_TEST_PRIVATE_MOUNTS"

// A root directory on a private mount becomes a shared one, once, in a mount namespace of the test.
func TestShare(t *testing.T) {
	if os.Getenv(privateMounts) == "" {
		if os.Geteuid() != 0 {
			t.Skip("mounting needs root")
		}
		again := exec.Command("/proc/self/exe", "-test.run=^TestShare$", "-test.v")
		again.Env = append(os.Environ(), privateMounts+"=1")
		again.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS} // Go makes all mounts private
		out, err := again.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	mounts := func(dir string) (lines []string) {
		data, err := os.ReadFile("/proc/self/mountinfo")
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			if fields := strings.Fields(line); isBelow(fields[4], dir) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	top := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", top, "tmpfs", 0, ""))
	defer func() { assert.NoError(t, unmountAll(top)) }()
	root := filepath.Join(top, "root")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "pods"), 0o755))
	require.NoError(t, os.Symlink(root, filepath.Join(top, "link")))

	busy := filepath.Join(root, "pods", "v")
	require.NoError(t, os.Mkdir(busy, 0o755))
	require.NoError(t, unix.Mount("tmpfs", busy, "tmpfs", 0, ""))
	require.ErrorContains(t, Share(root), busy+" is mounted")
	require.NoError(t, unix.Unmount(busy, 0))
	require.Empty(t, mounts(root))

	for range 2 {
		require.NoError(t, Share(filepath.Join(top, "link")))
		require.Len(t, mounts(root), 1)
		assert.Contains(t, mounts(root)[0], " shared:")
	}
	assert.DirExists(t, busy)

	own := filepath.Join(top, "own")
	require.NoError(t, os.Mkdir(own, 0o755))
	require.NoError(t, unix.Mount("tmpfs", own, "tmpfs", 0, ""))
	require.NoError(t, Share(own))
	require.Len(t, mounts(own), 1, "it is a mount already")
	assert.Contains(t, mounts(own)[0], " shared:")
	assert.Error(t, Share(filepath.Join(top, "missing")))
}

func TestMountOf(t *testing.T) {
	const info = `25 0 8:1 / / rw - ext4 /dev/sda rw
26 25 0:5 / /dev rw shared:2 - devtmpfs dev rw
27 25 8:2 / /var rw shared:7 master:1 - ext4 /dev/sdb rw
28 27 8:3 / /var/lib/my\040root rw - ext4 /dev/sdc rw
29 27 8:3 / /var/lib/my\040root rw shared:9 - ext4 /dev/sdc rw
30 29 0:9 / /var/lib/my\040root/pods/v rw - tmpfs shared:1 rw
`
	for dir, want := range map[string]struct {
		on    mount
		below string
	}{
		"/home":                   {mount{"/", false}, ""},
		"/var/lib":                {mount{"/var", true}, "/var/lib/my root/pods/v"},
		"/var/lib/my root":        {mount{"/var/lib/my root", true}, "/var/lib/my root/pods/v"},
		"/variable":               {mount{"/", false}, ""},
		"/var/lib/my root/pods/v": {mount{"/var/lib/my root/pods/v", false}, ""},
	} {
		on, below, err := mountOf(strings.NewReader(info), dir)
		require.NoError(t, err)
		assert.Equal(t, want.on, on, dir)
		assert.Equal(t, want.below, below, dir)
	}
}
