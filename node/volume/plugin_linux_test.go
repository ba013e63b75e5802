package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/volumetest"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

func tmpfs(dir string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m") }

func TestAMountedPluginConforms(t *testing.T) {
	needsMount(t)
	p := &pool{}
	volumetest.Suite(t,
		volumetest.Factory{New: func(*testing.T) volume.Plugin { return &disk{pool: p, name: "disk", mount: tmpfs} },
			Volume: iscsi("v")})
	assert.Empty(t, p.attached)
}

// What is mounted is unmounted before the disk below is detached, sub-paths too.
func TestMountedPlugin(t *testing.T) {
	needsMount(t)
	for _, configured := range []bool{true, false} {
		p, dir := &pool{}, t.TempDir()
		d := &disk{pool: p, name: "disk", mount: tmpfs}
		m, web := managerWith(t, d), pod(iscsi("a"))
		for range 2 {
			_, err := m.SetUp(t.Context(), web, dir)
			require.NoError(t, err)
		}
		assert.Equal(t, []string{"set up a, mounted: false", "set up a, mounted: true"}, p.take())
		ready, err := m.SetUp(t.Context(), web, dir)
		require.NoError(t, err)
		sub, err := m.SubPath(t.Context(), kruntime.SubPath{
			Pod: kruntime.RefOf(web), Container: "main", VolumeName: "a", Volume: ready["a"], Path: "in/deep", Dir: dir,
		})
		require.NoError(t, err)
		points := mounts(t, dir)
		assert.Equal(t, []string{ready["a"].HostPath, sub}, points)

		d.fail = func(step string) error {
			if strings.HasPrefix(step, "detach") {
				assert.Equal(t, []string{ready["a"].HostPath}, mounts(t, dir), "the sub-path is gone")
			}
			return nil
		}
		if !configured {
			m = newManager(t)
		}
		require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(web), dir))
		assert.Empty(t, mounts(t, dir))
		assert.NoDirExists(t, dir)
	}
}

// A volume that a kubelet has left, and that cannot be unmounted, stays as it is: its driver needs
// the files beside the mount. Other volumes of the pod are removed.
func TestABusyVolumeOfAnUnknownPluginStays(t *testing.T) {
	needsMount(t)
	m, dir := newManager(t), t.TempDir()
	csi, files := volume.PlaceOf(dir, "kubernetes.io/csi", "pv"), volume.PlaceOf(dir, "kubernetes.io/empty-dir",
		"files")
	point := filepath.Join(csi.Dir, "mount")
	require.NoError(t, os.MkdirAll(point, 0o700))
	require.NoError(t, os.MkdirAll(files.Dir, 0o700))
	var beside []string
	for i := range 20 { // the list of a directory has an order of its own
		beside = append(beside, filepath.Join(csi.Dir, fmt.Sprintf("%d-vol_data.json", i)))
		require.NoError(t, os.WriteFile(beside[i], nil, 0o600))
	}
	require.NoError(t, tmpfs(point))
	open, err := os.Create(filepath.Join(point, "f"))
	require.NoError(t, err)
	defer func() { _ = open.Close() }()

	ref := kruntime.PodRef{UID: "u1"}
	require.ErrorContains(t, m.Remove(t.Context(), ref, dir), `volume "pv"`)
	for _, file := range beside {
		assert.FileExists(t, file)
	}
	assert.FileExists(t, filepath.Join(point, "f"))
	assert.NoDirExists(t, files.Dir)
	require.NoError(t, open.Close())
	require.NoError(t, m.Remove(t.Context(), ref, dir))
	assert.NoDirExists(t, dir)
}

// A bind mount of the same file system is a mount, too.
func TestPlaceMounted(t *testing.T) {
	needsMount(t)
	base := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(base, link))
	place := volume.PlaceOf(link, "example.com/disk", "a b")
	mounted, err := place.Mounted()
	require.NoError(t, err)
	assert.False(t, mounted, "not even its parent is there")
	require.NoError(t, place.Unmount())
	require.NoError(t, os.MkdirAll(place.Dir, 0o700))
	mounted, err = place.Mounted()
	require.NoError(t, err)
	assert.False(t, mounted)

	source := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(source, "in"), 0o700))
	require.NoError(t, syscall.Mount(source, place.Dir, "", syscall.MS_BIND, ""))
	require.NoError(t, syscall.Mount(source, filepath.Join(place.Dir, "in"), "", syscall.MS_BIND, ""))
	mounted, err = place.Mounted()
	require.NoError(t, err)
	assert.True(t, mounted)
	require.NoError(t, place.Unmount())
	mounted, err = place.Mounted()
	require.NoError(t, err)
	assert.False(t, mounted)
	assert.Empty(t, mounts(t, base))
}

// mounts returns the mount points below dir.
func mounts(t *testing.T, dir string) (points []string) {
	t.Helper()
	info, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], dir+"/") {
			points = append(points, f[4])
		}
	}
	return points
}

// Nothing is removed below a mount that is in use.
func TestRemoveDoesNotCrossAMount(t *testing.T) {
	needsMount(t)
	for _, configured := range []bool{true, false} {
		p, dir := &pool{}, t.TempDir()
		m, web := managerWith(t, &disk{pool: p, name: "disk", mount: tmpfs}), pod(iscsi("a"))
		ready, err := m.SetUp(t.Context(), web, dir)
		require.NoError(t, err)
		f, err := os.Create(filepath.Join(ready["a"].HostPath, "f"))
		require.NoError(t, err)
		if !configured {
			m = newManager(t)
		}
		require.ErrorIs(t, m.TearDown(t.Context(), kruntime.RefOf(web), dir), syscall.EBUSY)
		require.ErrorIs(t, m.Remove(t.Context(), kruntime.RefOf(web), dir), syscall.EBUSY)
		assert.FileExists(t, f.Name())
		assert.FileExists(t, filepath.Join(dir, "plugins", "disk", "a", "disk"))
		require.NoError(t, f.Close())
		require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(web), dir))
		assert.NoDirExists(t, dir)
	}
}

// staging is a plugin that mounts in its StateDir and leaves that to the manager.
type staging struct{ source string }

func (staging) Name() string               { return "staging" }
func (staging) Supports(v *v1.Volume) bool { return v.NFS != nil }

func (s staging) SetUp(_ context.Context, req volume.SetUpRequest) (kruntime.Volume, error) {
	stage := filepath.Join(req.StateDir, "stage")
	if err := os.Mkdir(stage, 0o700); err != nil {
		return kruntime.Volume{}, err
	}
	return kruntime.Volume{HostPath: stage}, syscall.Mount(s.source, stage, "", syscall.MS_BIND, "")
}

func (staging) TearDown(context.Context, volume.TearDownRequest) error { return nil }

// Also while the volume of another plugin cannot be taken down.
func TestWhatIsMountedInAStateDirIsNotCrossed(t *testing.T) {
	needsMount(t)
	source, dir := t.TempDir(), t.TempDir()
	data := filepath.Join(source, "data")
	require.NoError(t, os.WriteFile(data, []byte("precious"), 0o600))
	d := &disk{pool: &pool{}, name: "disk", mount: tmpfs, fail: func(step string) error {
		if strings.HasPrefix(step, "detach") {
			return errors.New("the target is away")
		}
		return nil
	}}
	m := managerWith(t, d, staging{source})
	web := pod(iscsi("a"), v1.Volume{Name: "b", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}})
	_, err := m.SetUp(t.Context(), web, dir)
	require.NoError(t, err)
	require.ErrorContains(t, m.TearDown(t.Context(), kruntime.RefOf(web), dir), "the target is away")
	assert.FileExists(t, data)
	assert.NoDirExists(t, filepath.Join(dir, "plugins", "staging", "b"))
	d.fail = nil
	require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(web), dir))
	assert.FileExists(t, data)
}

// The list of mounts has a line for each mount of the node.
func TestTearDownWithoutMountsReadsNoList(t *testing.T) {
	m, web := newManager(t), pod(v1.Volume{Name: "v",
		VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	dir := t.TempDir()
	info, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	if len(info) < 1000 {
		t.Skipf("%d bytes of mounts are too few to tell", len(info))
	}
	for _, medium := range []v1.StorageMedium{v1.StorageMediumDefault, v1.StorageMediumMemory} {
		if medium == v1.StorageMediumMemory && os.Geteuid() != 0 {
			t.Skip("mounting needs root")
		}
		web.Spec.Volumes[0].EmptyDir.Medium = medium
		_, err := m.SetUp(t.Context(), web, dir)
		require.NoError(t, err)
		before := bytesRead(t)
		own := bytesRead(t) - before // what this takes itself
		require.NoError(t, m.TearDown(t.Context(), kruntime.RefOf(web), dir))
		assert.Less(t, bytesRead(t)-before-2*own, len(info)/2, medium)
		assert.Empty(t, mounts(t, dir))
	}
}

// bytesRead returns how many bytes this process has read from files (proc_pid_io(5)).
func bytesRead(t *testing.T) (n int) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip("the kernel does not count: ", err)
	}
	_, err = fmt.Sscanf(string(data), "rchar: %d", &n)
	require.NoError(t, err)
	return n
}
