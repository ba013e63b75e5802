//go:build linux

package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/volume/local"
)

// guestDisk returns the empty disk of a guest, see program test/e2e/guest.
func guestDisk(t *testing.T) string {
	t.Helper()
	disk := os.Getenv("KUBELETKIT_GUEST_DISK")
	if disk == "" {
		t.Skip("runs in a guest only: go run ./guest")
	}
	return disk
}

func sh(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", script).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

// A disk of a real machine gets a file system, keeps it over the pods and the agent, and is never formatted if there
// is anything on it.
func TestGuestLocalDisk(t *testing.T) {
	disk := guestDisk(t)
	root := t.TempDir()
	pv := &v1.PersistentVolume{}
	pv.Name = "pv-1"
	pv.Spec.Local = &v1.LocalVolumeSource{Path: disk}
	dir := filepath.Join(root, "pods/uid-web")
	start := func() (setUp func() error, remove func()) {
		p, err := local.New(root, local.Options{})
		require.NoError(t, err)
		m := manager(t, p, pv)
		block := ptr.Deref(pv.Spec.VolumeMode, "") == v1.PersistentVolumeBlock
		return func() error {
				_, err := m.SetUp(t.Context(), pod("web", block), dir)
				return err
			}, func() {
				err := m.Remove(t.Context(), ref("web"), dir)
				require.NoError(t, err, "%s", sh(t, "find "+dir+"; grep "+dir+" /proc/mounts; df "+root))
				assert.NoDirExists(t, dir)
				assert.Empty(t, sh(t, "grep "+disk+" /proc/mounts || true"), "nothing stays mounted")
			}
	}
	setUp, _ := start()
	require.NoError(t, setUp())
	file := filepath.Join(dir, "volumes/kubernetes.io~local-volume/pv-1/file")
	require.NoError(t, os.WriteFile(file, []byte("data"), 0o600))
	assert.Equal(t, "ext4", sh(t, "blkid -p -s TYPE -o value "+disk))

	setUp, remove := start() // the agent starts again
	require.NoError(t, setUp())
	assert.FileExists(t, file)
	remove()
	require.NoError(t, setUp())
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "data", string(content))
	remove()

	pv.Spec.Local.FSType = ptr.To("xfs")
	setUp, remove = start()
	require.ErrorContains(t, setUp(), "The disk has ext4, and xfs is requested")
	remove()
	assert.Equal(t, "ext4", sh(t, "blkid -p -s TYPE -o value "+disk))

	pv.Spec.Local.FSType, pv.Spec.VolumeMode = nil, ptr.To(v1.PersistentVolumeBlock)
	sh(t, "modprobe loop")
	setUp, remove = start()
	require.NoError(t, setUp())
	assert.Contains(t, sh(t, "losetup -a"), "/volumeDevices/pv-1/uid-web)", "the device is held open")
	device := filepath.Join(dir, "volumeDevices/kubernetes.io~local-volume/pv-1")
	assert.Equal(t, "ext4", sh(t, "blkid -p -s TYPE -o value "+device))
	remove()
	assert.Empty(t, sh(t, "losetup -a"))

	pv.Spec.VolumeMode = nil
	sh(t, "wipefs -a "+disk+" && mkswap "+disk)
	setUp, remove = start()
	require.ErrorContains(t, setUp(), "The disk has swap, and ext4 is requested")
	remove()
	assert.Equal(t, "swap", sh(t, "blkid -p -s TYPE -o value "+disk))
	sh(t, "wipefs -a "+disk)
}
