package volume_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

const (
	stReadOnly = 1 << iota // as in statfs(2)
	stNoSuid
	stNoDev
	stNoExec
	stNoAtime = 1 << 10
)

// mountFlags returns the options of the mount that dir is in.
func mountFlags(t *testing.T, dir string) int64 {
	t.Helper()
	var st syscall.Statfs_t
	require.NoError(t, syscall.Statfs(dir, &st))
	return int64(st.Flags) & (stReadOnly | stNoSuid | stNoDev | stNoExec | stNoAtime)
}

// A local volume is mounted with the options of the persistent volume, again after a reboot.
// Options that it has on the host stay. Nothing of that changes the volume on the host.
func TestMountOptions(t *testing.T) {
	needsMount(t)
	for name, tc := range map[string]struct {
		options []string
		want    int64
	}{
		"added":      {[]string{"ro", "nodev", "noatime", "data=ordered"}, stNoSuid | stReadOnly | stNoDev | stNoAtime},
		"taken away": {[]string{"suid", "noexec"}, stNoExec},
	} {
		t.Run(name, func(t *testing.T) {
			disk, dir := t.TempDir(), t.TempDir()
			require.NoError(t, syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_NOSUID, ""))
			defer func() { assert.NoError(t, syscall.Unmount(disk, 0)) }()
			require.NoError(t, os.WriteFile(filepath.Join(disk, "f"), []byte("kept"), 0o600))
			before := mountFlags(t, disk)
			b, v := bound(local(disk)), claimVolume()
			v.PersistentVolumeClaim.ReadOnly = false
			b.pv.Spec.MountOptions = tc.options
			place := volume.PlaceOf(dir, volume.Claim{}.Name(), "v")
			setUp := func() *volume.Reconciler {
				m := contentManager(t, volume.Sources{Claims: b})
				ready, err := m.SetUp(t.Context(), pod(v), dir)
				require.NoError(t, err)
				assert.Equal(t, place.Dir, ready["v"].HostPath)
				assert.Len(t, mounts(t, dir), 1)
				assert.Equal(t, tc.want, mountFlags(t, place.Dir))
				assert.FileExists(t, filepath.Join(place.Dir, "f"))
				return m
			}
			setUp()
			b.claim = nil // it is remembered
			setUp()
			require.NoError(t, place.Unmount())
			m := setUp()
			require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(pod()), dir))
			assert.NoDirExists(t, dir)
			assert.Empty(t, mounts(t, dir))
			assert.FileExists(t, filepath.Join(disk, "f"))
			assert.Equal(t, before, mountFlags(t, disk))
		})
	}
}

// What is mounted on the host in a local volume, or over it, after it was mounted for a pod is
// there for the pod, too, and stays on the host when the pod ends.
func TestMountsOfTheHostInALocalVolume(t *testing.T) {
	needsMount(t)
	host, dir := t.TempDir(), t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", host, "tmpfs", 0, ""))
	defer func() { assert.NoError(t, syscall.Unmount(host, syscall.MNT_DETACH)) }()
	require.NoError(t, syscall.Mount("", host, "", syscall.MS_SHARED, ""))
	disk := filepath.Join(host, "disk")
	require.NoError(t, os.MkdirAll(filepath.Join(disk, "sub"), 0o755))
	b := bound(local(disk))
	b.pv.Spec.MountOptions = []string{"noexec"}
	m := contentManager(t, volume.Sources{Claims: b})
	ready, err := m.SetUp(t.Context(), pod(claimVolume()), dir)
	require.NoError(t, err)
	inPod := ready["v"].HostPath
	for _, at := range []string{filepath.Join(disk, "sub"), disk} {
		require.NoError(t, syscall.Mount("tmpfs", at, "tmpfs", 0, ""))
		require.NoError(t, os.WriteFile(filepath.Join(at, "late"), nil, 0o600))
	}
	assert.FileExists(t, filepath.Join(inPod, "late"))
	again, err := m.SetUp(t.Context(), pod(claimVolume()), dir)
	require.NoError(t, err)
	assert.Equal(t, ready, again)
	assert.Len(t, mounts(t, dir), 3)
	require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(pod()), dir))
	assert.Empty(t, mounts(t, dir))
	assert.NoDirExists(t, dir)
	assert.Len(t, mounts(t, host), 2)
	assert.FileExists(t, filepath.Join(disk, "late"))
}

// An agent that may not mount refuses a volume with mount options, and says what it needs.
func TestMountOptionsWithoutPrivileges(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may mount")
	}
	disk := t.TempDir()
	b := bound(local(disk))
	b.pv.Spec.MountOptions = []string{"noexec"}
	ready, err := contentManager(t, volume.Sources{Claims: b}).SetUp(t.Context(), pod(claimVolume()), t.TempDir())
	require.ErrorIs(t, err, syscall.EPERM)
	assert.ErrorContains(t, err, "mounting "+disk+" with the options noexec: open_tree: operation not permitted; "+
		"the agent needs CAP_SYS_ADMIN for mount options")
	assert.Empty(t, ready)
}
