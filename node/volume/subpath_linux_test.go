package volume_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// What was mounted on the host below a sub-path while a pod had it stays there when the pod ends.
func TestMountsOfTheHostBelowASubPath(t *testing.T) {
	needsMount(t)
	host, dir := t.TempDir(), t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", host, "tmpfs", 0, ""))
	defer func() { assert.NoError(t, syscall.Unmount(host, syscall.MNT_DETACH)) }()
	require.NoError(t, syscall.Mount("", host, "", syscall.MS_SHARED, ""))
	disk := filepath.Join(host, "sub/disk")
	require.NoError(t, os.MkdirAll(disk, 0o755))
	m, p := newManager(t), pod(hostPath("v", host, v1.HostPathUnset))
	ready, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	at, err := m.SubPath(t.Context(), kruntime.SubPath{Pod: kruntime.RefOf(p), Container: "c", VolumeName: "v",
		Volume: ready["v"], Path: "sub", Dir: dir})
	require.NoError(t, err)
	require.NoError(t, syscall.Mount("tmpfs", disk, "tmpfs", 0, ""))
	require.NoError(t, os.WriteFile(filepath.Join(disk, "f"), []byte("kept"), 0o600))
	require.FileExists(t, filepath.Join(at, "disk/f"))
	require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(p), dir))
	assert.NoDirExists(t, dir)
	assert.Empty(t, mounts(t, dir))
	assert.Equal(t, []string{disk}, mounts(t, host))
	assert.FileExists(t, filepath.Join(disk, "f"))
}

// A container can put anything into its volume. The agent must not open it: a watchdog
// begins to count when it is opened, and a pipe lets its writers through.
func TestSubPathOpensNothing(t *testing.T) {
	vol := t.TempDir()
	plant := map[string]func(path string) error{
		"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"file":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"dir":    func(path string) error { return os.Mkdir(path, 0o700) },
		"socket": func(path string) error { return bind(t, path) },
		"device": func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) }, // null
	}
	for name, plant := range plant {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(vol, name)
			if err := plant(path); err != nil {
				t.Skip(err) // devices need root
			}
			watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
			require.NoError(t, err)
			defer func() { _ = unix.Close(watch) }()
			_, err = unix.InotifyAddWatch(watch, path, unix.IN_OPEN)
			require.NoError(t, err)

			m, podDir := newManager(t), t.TempDir()
			req := kruntime.SubPath{Pod: kruntime.PodRef{UID: "u1"}, Container: "main", VolumeName: "v",
				Volume: kruntime.Volume{HostPath: vol}, Path: name, Dir: podDir}
			defer func() { require.NoError(t, m.Remove(t.Context(), req.Pod, podDir)) }()
			for range 2 {
				got, err := m.SubPath(t.Context(), req)
				require.NoError(t, err)
				want, err := os.Lstat(path)
				require.NoError(t, err)
				have, err := os.Lstat(got)
				require.NoError(t, err)
				assert.True(t, os.SameFile(want, have))
			}
			_, err = unix.Read(watch, make([]byte, 4096))
			assert.ErrorIs(t, err, unix.EAGAIN, "it was opened")
		})
	}
}

func bind(t *testing.T, path string) error {
	lis, err := net.Listen("unix", path)
	if err == nil {
		t.Cleanup(func() { _ = lis.Close() })
	}
	return err
}

// What is at a sub-path may be of another type at the next start of the container.
func TestSubPathOfAnotherType(t *testing.T) {
	vol, podDir, m := t.TempDir(), t.TempDir(), newManager(t)
	path := filepath.Join(vol, "data")
	req := kruntime.SubPath{Pod: kruntime.PodRef{UID: "u1"}, Container: "main", VolumeName: "v",
		Volume: kruntime.Volume{HostPath: vol}, Path: "data", Dir: podDir}
	defer func() { require.NoError(t, m.Remove(t.Context(), req.Pod, podDir)) }()
	for _, plant := range []func() error{
		func() error { return os.WriteFile(path, nil, 0o600) },
		func() error { return os.Mkdir(path, 0o700) },
		func() error { return bind(t, path) },
		func() error { return os.Mkdir(path, 0o700) },
		func() error { return syscall.Mkfifo(path, 0o600) },
	} {
		require.NoError(t, os.RemoveAll(path))
		require.NoError(t, plant())
		got, err := m.SubPath(t.Context(), req)
		require.NoError(t, err)
		want, err := os.Lstat(path)
		require.NoError(t, err)
		have, err := os.Lstat(got)
		require.NoError(t, err)
		assert.True(t, os.SameFile(want, have))
	}
}

// A read-only volume of a claim stays as it is. In volumes of files, directories are made.
func TestSubPathInAReadOnlyVolume(t *testing.T) {
	m, podDir := newManager(t), t.TempDir()
	for _, tc := range []struct {
		volume kruntime.Volume
		made   bool
	}{
		{kruntime.Volume{HostPath: t.TempDir(), ReadOnly: true}, false},
		{kruntime.Volume{HostPath: t.TempDir()}, true},
		{kruntime.Volume{HostPath: volume.PlaceOf(podDir, "kubernetes.io/configmap", "v").Dir, ReadOnly: true}, true},
		{kruntime.Volume{HostPath: volume.PlaceOf(podDir, "kubernetes.io/projected", "v").Dir, ReadOnly: true}, true},
		// With mount options, a claim is mounted in the pod's directory, as are the volumes of other plugins.
		{kruntime.Volume{HostPath: volume.PlaceOf(podDir, volume.Claim{}.Name(), "v").Dir, ReadOnly: true}, false},
		{kruntime.Volume{HostPath: volume.PlaceOf(podDir, "example.com/disk", "v").Dir, ReadOnly: true}, false},
	} {
		require.NoError(t, os.MkdirAll(tc.volume.HostPath, 0o755))
		req := kruntime.SubPath{Pod: kruntime.PodRef{UID: "u1"}, Container: "main", VolumeName: "v", Volume: tc.volume,
			Path: "no/such", Dir: podDir}
		_, err := m.SubPath(t.Context(), req)
		if tc.made {
			require.NoError(t, err)
			assert.DirExists(t, filepath.Join(tc.volume.HostPath, "no/such"))
			continue
		}
		require.ErrorContains(t, err, "it does not exist, and the volume is read-only")
		assert.NoDirExists(t, filepath.Join(tc.volume.HostPath, "no"))
		require.NoError(t, os.Mkdir(filepath.Join(tc.volume.HostPath, "no"), 0o755))
		req.Path = "no"
		_, err = m.SubPath(t.Context(), req)
		require.NoError(t, err)
	}
	require.NoError(t, m.Remove(t.Context(), kruntime.PodRef{UID: "u1"}, podDir))
}

// Directories that are made have the mode of the volume, whatever the umask, its set-group-ID bit
// and its sticky bit.
func TestSubPathIsMadeWithTheModeOfTheVolume(t *testing.T) {
	for _, mode := range []os.FileMode{0o777 | os.ModeSetgid, 0o777 | os.ModeSticky,
		0o770 | os.ModeSticky | os.ModeSetgid, 0o700} {
		t.Run(mode.String(), func(t *testing.T) { testModeOfSubPath(t, mode) })
	}
}

func testModeOfSubPath(t *testing.T, mode os.FileMode) {
	vol, m, podDir := t.TempDir(), newManager(t), t.TempDir()
	require.NoError(t, os.Chmod(vol, mode))
	req := kruntime.SubPath{Pod: kruntime.PodRef{UID: "u1"}, Container: "main", VolumeName: "v",
		Volume: kruntime.Volume{HostPath: vol}, Path: "a/b", Dir: podDir}
	_, err := m.SubPath(t.Context(), req)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Remove(t.Context(), req.Pod, podDir)) }()
	for _, dir := range []string{"a", "a/b"} {
		info, err := os.Stat(filepath.Join(vol, dir))
		require.NoError(t, err)
		assert.Equal(t, os.ModeDir|mode, info.Mode())
	}
}

// A pod can have as many sub-paths as its spec has room for. The list of mounts, which has a line for each, is not read
// for each of them.
func TestSubPathsReadNoList(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	m, dir := newManager(t), t.TempDir()
	p := pod(emptyDir("v", v1.EmptyDirVolumeSource{}))
	ready, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	defer func() { assert.NoError(t, m.Remove(context.WithoutCancel(t.Context()), kruntime.RefOf(p), dir)) }()
	at := ready["v"].HostPath
	prepare := func() {
		for i := range 50 {
			_, err := m.SubPath(t.Context(), kruntime.SubPath{
				Pod: kruntime.RefOf(p), Container: "main", Index: i, VolumeName: "v", Volume: ready["v"],
				Path: fmt.Sprint(i), Dir: dir,
			})
			require.NoError(t, err)
		}
	}
	check := func(what string) {
		info, err := os.ReadFile("/proc/self/mountinfo")
		require.NoError(t, err)
		before := bytesRead(t)
		prepare()
		assert.Less(t, bytesRead(t)-before, 5*len(info), what)
	}
	check("new")
	check("unchanged")
	for i := range 50 { // the container replaces them
		require.NoError(t, os.Rename(filepath.Join(at, fmt.Sprint(i)), filepath.Join(at, fmt.Sprint("old", i))))
	}
	check("replaced")
	points, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	mounts := 0
	for line := range strings.SplitSeq(string(points), "\n") {
		if strings.Contains(line, dir) {
			mounts++
		}
	}
	assert.Equal(t, 50, mounts, "the old ones are unmounted")
}
