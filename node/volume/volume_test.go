//go:build unix

package volume_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newManager(t *testing.T) *volume.Reconciler {
	t.Helper()
	m, err := volume.New(volume.Options{})
	require.NoError(t, err)
	return m
}

// pod returns pod default/web with UID u1.
func pod(volumes ...v1.Volume) *v1.Pod {
	return testpod.New("web", testpod.UID("u1"), testpod.Containers("main"), testpod.Volumes(volumes...))
}

func emptyDir(name string, src v1.EmptyDirVolumeSource) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &src}}
}

func hostPath(name, path string, typ v1.HostPathType) v1.Volume {
	return v1.Volume{Name: name,
		VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &typ}}}
}

func TestEmptyDirLivesAsLongAsThePod(t *testing.T) {
	m, dir := newManager(t), t.TempDir()
	p := pod(emptyDir("scratch", v1.EmptyDirVolumeSource{}))

	got, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	at := got["scratch"].HostPath
	assert.Equal(t, filepath.Join(dir, "volumes", "kubernetes.io~empty-dir", "scratch"), at)
	info, err := os.Stat(at)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o777), info.Mode().Perm(), "whatever the umask")

	require.NoError(t, os.WriteFile(filepath.Join(at, "f"), []byte("kept"), 0o600))
	again, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	assert.Equal(t, got, again)
	assert.FileExists(t, filepath.Join(at, "f"))

	ref := kruntime.RefOf(p)
	require.NoError(t, m.TearDown(t.Context(), ref, dir))
	assert.NoDirExists(t, at)
	require.NoError(t, m.Remove(t.Context(), ref, dir))
	require.NoError(t, m.Remove(t.Context(), ref, dir), "twice")
	assert.NoDirExists(t, dir)
}

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	require.NoError(t, os.Symlink(filepath.Join(dir, "planted"), filepath.Join(dir, "dangling")))
	defer func() { assert.NoFileExists(t, filepath.Join(dir, "planted")) }()

	for _, tc := range []struct {
		path string
		typ  v1.HostPathType
		bad  string
	}{
		{file, v1.HostPathUnset, ""},
		{filepath.Join(dir, "absent"), v1.HostPathUnset, ""},
		{dir, v1.HostPathDirectory, ""},
		{file, v1.HostPathDirectory, "hostPath type check failed: " + file + " is not a directory"},
		{filepath.Join(dir, "absent"), v1.HostPathDirectory, "hostPath type check failed: " + filepath.Join(dir, "absent") + " is not a directory"},
		{filepath.Join(dir, "new", "er"), v1.HostPathDirectoryOrCreate, ""},
		{file, v1.HostPathDirectoryOrCreate, "hostPath type check failed: " + file + " is not a directory"},
		{file, v1.HostPathFile, ""},
		{dir, v1.HostPathFile, "hostPath type check failed: " + dir + " is not a file"},
		{filepath.Join(dir, "absent"), v1.HostPathFile, "hostPath type check failed: " + filepath.Join(dir, "absent") + " is not a file"},
		{dir, v1.HostPathFileOrCreate, "hostPath type check failed: " + dir + " is not a file"},
		{filepath.Join(file, "below"), v1.HostPathDirectory, "is not a directory: stat "},
		{filepath.Join(dir, "made"), v1.HostPathFileOrCreate, ""},
		{filepath.Join(dir, "no", "parent"), v1.HostPathFileOrCreate, "no such file"},
		{filepath.Join(dir, "dangling"), v1.HostPathFileOrCreate, "file exists"}, // what it points to is not made
		{socket, v1.HostPathSocket, ""},
		{file, v1.HostPathSocket, "hostPath type check failed: " + file + " is not a socket file"},
		{file, v1.HostPathCharDev, "hostPath type check failed: " + file + " is not a character device"},
		{"/dev/null", v1.HostPathCharDev, ""},
		{"/dev/null", v1.HostPathBlockDev, "hostPath type check failed: /dev/null is not a block device"},
		{file, "Nonsense", "Nonsense is an invalid volume type"},
		{"relative", v1.HostPathUnset, "must be an absolute path"},
	} {
		t.Run(fmt.Sprintf("%s as %q", filepath.Base(tc.path), tc.typ), func(t *testing.T) {
			got, err := newManager(t).SetUp(t.Context(), pod(hostPath("v", tc.path, tc.typ)), t.TempDir())
			if tc.bad != "" {
				require.ErrorContains(t, err, tc.bad)
				require.ErrorContains(t, err, `volume "v"`)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, kruntime.Volume{HostPath: tc.path}, got["v"])
		})
	}
}

// A path that was right once for the pod does not keep its containers from starting again when
// it is not, also after a restart of the agent. Other pods wait.
func TestPathThatIsGone(t *testing.T) {
	top, dir := t.TempDir(), filepath.Join(t.TempDir(), "u1")
	path := filepath.Join(top, "path")
	host := bound(v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path,
		Type: ptr.To(v1.HostPathDirectory)}})
	for name, tc := range map[string]struct {
		volume v1.Volume
		claims *bindings
		stays  bool
		text   string
	}{
		"hostPath":              {hostPath("v", path, v1.HostPathDirectory), nil, true, `MountVolume.SetUp failed for volume "v" : hostPath type check failed: ` + path + " is not a directory"},
		"persistent, of a host": {claimVolume(), host, true, `MountVolume.SetUp failed for volume "pv" : hostPath type check failed: ` + path + " is not a directory"},
		"persistent, of a local": {
			claimVolume(), bound(local(path)), false,
			fmt.Sprintf(`MountVolume.NewMounter initialization failed for volume "pv" : path %q does not exist`, path),
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.Mkdir(path, 0o755))
			start := func() *volume.Reconciler {
				var sources volume.Sources
				if tc.claims != nil {
					sources.Claims = tc.claims
				}
				return contentManager(t, sources)
			}
			before, err := start().SetUp(t.Context(), pod(tc.volume), dir)
			require.NoError(t, err)
			require.NoError(t, os.Remove(path))
			m := start()
			ready, err := m.SetUp(t.Context(), pod(tc.volume), dir)
			assert.Equal(t, []string{tc.text}, volume.FailedMounts(pod(tc.volume), ready, err))
			if tc.stays {
				assert.Equal(t, before, ready)
			} else {
				assert.Empty(t, ready)
			}
			ready, err = m.SetUp(t.Context(), pod(tc.volume), t.TempDir())
			require.Error(t, err)
			assert.Empty(t, ready, "another pod")
			require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(pod()), dir))
			assert.NoDirExists(t, dir)
		})
	}
}

func TestOtherTypesAreNamed(t *testing.T) {
	p := pod(
		v1.Volume{Name: "a", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}},
		v1.Volume{Name: "b",
			VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}},
		emptyDir("c", v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}),
	)
	_, err := newManager(t).SetUp(t.Context(), p, t.TempDir())
	require.ErrorIs(t, err, volume.ErrUnsupported)
	for _, part := range []string{`volume "a"`, "nfs", `volume "b"`, "persistentVolumeClaim",
		`volume "c"`, "HugePages"} {
		assert.ErrorContains(t, err, part)
	}
}

func TestSubPathStaysInTheVolume(t *testing.T) {
	base := t.TempDir()
	vol, secret := filepath.Join(base, "vol"), filepath.Join(base, "secret")
	require.NoError(t, os.MkdirAll(filepath.Join(vol, "in", "deep"), 0o755))
	require.NoError(t, os.Mkdir(secret, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(vol, "in", "f"), []byte("inside"), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(vol, "abs")))
	require.NoError(t, os.Symlink("../secret", filepath.Join(vol, "up")))
	require.NoError(t, os.Symlink("in", filepath.Join(vol, "down")))

	for _, tc := range []struct {
		path string
		ok   bool
	}{
		{"in", true}, {"in/f", true}, {"down", true}, {"down/deep", true}, {"made/by/us", true},
		{"abs", false}, {"up", false}, {"up/x", false}, {"../secret", false}, {"/etc", false}, {"in/../../secret", false},
	} {
		t.Run(tc.path, func(t *testing.T) {
			m, podDir := newManager(t), t.TempDir()
			req := kruntime.SubPath{Pod: kruntime.PodRef{UID: "u1", Name: "web"}, Container: "main", VolumeName: "v",
				Volume: kruntime.Volume{HostPath: vol}, Path: tc.path, Dir: podDir}
			got, err := m.SubPath(t.Context(), req)
			if !tc.ok {
				require.Error(t, err)
				assert.NoFileExists(t, filepath.Join(secret, "x"))
				return
			}
			require.NoError(t, err)
			defer func() { require.NoError(t, m.Remove(t.Context(), req.Pod, podDir)) }()
			want, err := os.Stat(filepath.Join(vol, tc.path))
			require.NoError(t, err)
			have, err := os.Stat(got)
			require.NoError(t, err)
			assert.True(t, os.SameFile(want, have))
			again, err := m.SubPath(t.Context(), req)
			require.NoError(t, err)
			assert.Equal(t, got, again)
		})
	}
	assert.DirExists(t, filepath.Join(vol, "in"), "removing the pods' directories must not reach into the volume")
	assert.FileExists(t, filepath.Join(vol, "in", "f"))
}

// A container that swaps a directory for a link after the check gains nothing: what
// was opened stays mounted.
func TestSubPathSwappedAfterwards(t *testing.T) {
	needsMount(t)
	base := t.TempDir()
	vol, secret := filepath.Join(base, "vol"), filepath.Join(base, "secret")
	require.NoError(t, os.MkdirAll(filepath.Join(vol, "data"), 0o755))
	require.NoError(t, os.Mkdir(secret, 0o700))
	m, podDir := newManager(t), t.TempDir()
	req := kruntime.SubPath{Container: "main", VolumeName: "v", Volume: kruntime.Volume{HostPath: vol},
		Path: "data", Dir: podDir}
	got, err := m.SubPath(t.Context(), req)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Remove(t.Context(), req.Pod, podDir)) }()

	require.NoError(t, os.Rename(filepath.Join(vol, "data"), filepath.Join(vol, "moved")))
	require.NoError(t, os.Symlink(secret, filepath.Join(vol, "data")))
	require.NoError(t, os.WriteFile(filepath.Join(got, "f"), nil, 0o600))
	assert.NoFileExists(t, filepath.Join(secret, "f"))
	assert.FileExists(t, filepath.Join(vol, "moved", "f"))
	_, err = m.SubPath(t.Context(), req)
	require.Error(t, err, "the next sync sees the link")
}

func TestEmptyDirInMemory(t *testing.T) {
	needsMount(t)
	m, dir := newManager(t), t.TempDir()
	p := pod(emptyDir("mem", v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory,
		SizeLimit: ptr.To(resource.MustParse("1Mi"))}))
	got, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	_, err = m.SetUp(t.Context(), p, dir)
	require.NoError(t, err, "twice")
	at := got["mem"].HostPath
	err = os.WriteFile(filepath.Join(at, "big"), make([]byte, 2<<20), 0o600)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(p), dir))
	assert.NoDirExists(t, dir)
}

func TestExceeded(t *testing.T) {
	m, dir := newManager(t), t.TempDir()
	p := pod(emptyDir("free", v1.EmptyDirVolumeSource{}),
		emptyDir("small", v1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("64Ki"))}))
	assert.True(t, volume.HasSizeLimit(p))
	got, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(got["free"].HostPath, "f"), make([]byte, 1<<20), 0o600))
	message, err := m.Exceeded(t.Context(), p, dir)
	require.NoError(t, err)
	assert.Empty(t, message)
	require.NoError(t, os.WriteFile(filepath.Join(got["small"].HostPath, "f"), make([]byte, 128<<10), 0o600))
	message, err = m.Exceeded(t.Context(), p, dir)
	require.NoError(t, err)
	assert.Equal(t, `Usage of EmptyDir volume "small" exceeds the limit "64Ki". `, message)
}

func TestFSGroup(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("giving a directory to another group needs root on Linux")
	}
	for _, medium := range []v1.StorageMedium{v1.StorageMediumDefault, v1.StorageMediumMemory} {
		m, dir := newManager(t), t.TempDir()
		p := pod(emptyDir("v", v1.EmptyDirVolumeSource{Medium: medium}))
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](4321)}
		got, err := m.SetUp(t.Context(), p, dir)
		require.NoError(t, err)
		info, err := os.Stat(got["v"].HostPath)
		require.NoError(t, err)
		assert.Equal(t, uint32(4321), info.Sys().(*syscall.Stat_t).Gid)
		assert.NotZero(t, info.Mode()&os.ModeSetgid)
		assert.Equal(t, os.FileMode(0o777), info.Mode().Perm())
		assert.Equal(t, medium == v1.StorageMediumMemory, info.Mode()&os.ModeSticky != 0)

		require.NoError(t, os.Chmod(got["v"].HostPath, 0o700))
		_, err = m.SetUp(t.Context(), p, dir)
		require.NoError(t, err)
		info, err = os.Stat(got["v"].HostPath)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "a later SetUp does not undo what the pod has changed")
		require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(p), dir))
	}
}

func TestEmptyDirAfterACrashWhileItWasMade(t *testing.T) {
	m, dir := newManager(t), t.TempDir()
	unfinished := filepath.Join(dir, "volumes", "kubernetes.io~empty-dir", ".scratch")
	require.NoError(t, os.MkdirAll(unfinished, 0o700))
	got, err := m.SetUp(t.Context(), pod(emptyDir("scratch", v1.EmptyDirVolumeSource{})), dir)
	require.NoError(t, err)
	info, err := os.Stat(got["scratch"].HostPath)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o777), info.Mode().Perm())
	assert.NoDirExists(t, unfinished)
}

func needsMount(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("mounting needs root on Linux")
	}
}

func ExampleManager_SetUp() {
	dir, _ := os.MkdirTemp("", "pod")
	m, _ := volume.New(volume.Options{})
	p := pod(emptyDir("scratch", v1.EmptyDirVolumeSource{}))
	ready, err := m.SetUp(context.Background(), p, dir)
	fmt.Println(filepath.Base(ready["scratch"].HostPath), err)
	fmt.Println(m.Remove(context.Background(), kruntime.RefOf(p), dir))
	// Output:
	// scratch <nil>
	// <nil>
}
