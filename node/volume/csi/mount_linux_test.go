package csi_test

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
)

// bindFile bind-mounts a file or a device.
func bindFile(t *testing.T, source, target string) {
	t.Helper()
	require.NoError(t, unix.Mount(source, target, "", unix.MS_BIND, ""))
}

// The disk has room for no more after the first file, the second and so on. What is there is taken down on the full
// disk, without the driver if it was not called.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	forEachWay(t, func(t *testing.T, opts csidriver.Options) {
		r := newRig(t, opts)
		r.add("data")
		r.add("raw", block)
		pod := r.pod("web", "data", "raw")
		r.use(pod, r.inline("scratch"))
		for n := 2; ; n++ {
			require.NoError(t, unix.Mount("small", r.root, "tmpfs", 0, fmt.Sprintf("nr_inodes=%d", n)))
			_, err := r.setUp(pod)
			if err != nil && len(r.calls()) == 0 {
				r.plugin.Deregister(r.registration())
				require.NoError(t, r.remove(pod), "%d inodes: the driver was not called", n)
				require.NoError(t, r.register())
			}
			require.NoError(t, r.remove(pod), "%d inodes", n)
			assert.Empty(t, inDriver(t, r.opts.Dir))
			volumes, _ := r.plugin.VolumesInUse()
			assert.Empty(t, volumes)
			require.NoError(t, unix.Unmount(r.root, 0))
			if err == nil || t.Failed() {
				require.Greater(t, n, 20)
				break
			}
		}
		r.isClean()
	})
}

// groupOf returns the group of a file.
func groupOf(info fs.FileInfo) int64 { return int64(info.Sys().(*syscall.Stat_t).Gid) }
