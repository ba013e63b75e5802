package volume

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
)

// A container moves what was measured to where it is measured again, as long as that is done.
func TestAWalkEnds(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); errors.Is(err, unix.EPERM) {
		t.Skip("not permitted to mount a file system, whose inodes are counted")
	} else {
		require.NoError(t, err)
	}
	defer func() { assert.NoError(t, unix.Unmount(dir, 0)) }()
	const n = 200
	files := filepath.Join(dir, "files")
	for i := range n {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, fmt.Sprintf("dir%d", i)), 0o700))
		require.NoError(t, os.MkdirAll(files, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(files, fmt.Sprint(i)), nil, 0o600))
	}
	looked := 0
	ctx := withSteps(t.Context(), func(step string) error {
		looked++
		name := strings.TrimPrefix(step, "look at ")
		if strings.HasPrefix(name, "dir") {
			next := filepath.Join(dir, name, "files")
			require.NoError(t, os.Rename(files, next))
			files = next
		}
		return context.Cause(t.Context())
	})
	_, _, err := treeUsage(ctx, dir, math.MaxInt64)
	require.ErrorIs(t, err, errMoved)
	assert.Less(t, looked, 2*(2*n+10)+replaced+n, "as many as there can be, and no more")
	_, found, err := treeUsage(t.Context(), dir, math.MaxInt64)
	require.NoError(t, err)
	assert.EqualValues(t, 2*n+2, found)
}

// A file system that is broken or does not answer is no reason to evict its pods: what cannot be measured is an error,
// and counts for no limit. The other volumes of the pod are measured.
func TestMeasurementsThatFail(t *testing.T) {
	m, err := New(Options{})
	require.NoError(t, err)
	dir := t.TempDir()
	pod := testpod.New("web", testpod.UID("u"))
	for _, name := range []string{"broken", "whole"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("64Ki"))}}})
		at := PlaceOf(dir, "kubernetes.io/empty-dir", name).Dir
		require.NoError(t, os.MkdirAll(at, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(at, "in-"+name), make([]byte, 32<<10), 0o600))
	}
	for cause, byPod := range map[error]bool{unix.EIO: false, unix.EUCLEAN: false, unix.ESTALE: false, unix.ENOTCONN: false,
		unix.EBADMSG: false, unix.ETIMEDOUT: false, unix.EREMOTEIO: false, unix.ENODEV: false, unix.ENOMEM: false,
		unix.EMFILE: false, context.DeadlineExceeded: false, errors.New("of tomorrow"): false,
		unix.EACCES: true, unix.ENOENT: true, errMoved: true, errTooDeep: true} {
		ctx := withSteps(t.Context(), func(step string) error {
			if step == "look at in-broken" {
				return fmt.Errorf("looking at it: %w", cause)
			}
			return nil
		})
		message, err := m.Exceeded(ctx, pod, dir)
		used, failed := m.Usage(ctx, pod, dir)
		require.ErrorIs(t, failed, cause)
		if byPod {
			require.NoError(t, err)
			assert.Contains(t, message, `EmptyDir volume "broken" with the limit "64Ki" cannot be measured`, cause)
			assert.EqualValues(t, math.MaxInt64, used)
			continue
		}
		require.ErrorIs(t, err, cause)
		assert.Empty(t, message, cause)
		assert.Less(t, used, int64(64<<10), cause)

		require.NoError(t, os.WriteFile(filepath.Join(PlaceOf(dir, "kubernetes.io/empty-dir", "whole").Dir, "more"),
			make([]byte, 64<<10), 0o600))
		message, err = m.Exceeded(ctx, pod, dir)
		require.NoError(t, err)
		assert.Equal(t, `Usage of EmptyDir volume "whole" exceeds the limit "64Ki". `, message)
		require.NoError(t, os.Remove(filepath.Join(PlaceOf(dir, "kubernetes.io/empty-dir", "whole").Dir, "more")))
	}
}

// A file system that does not know how many of its inodes are in use sets no limit: the pod would be evicted.
func TestInodesThatAreNotCounted(t *testing.T) {
	assert.EqualValues(t, 2*400+replaced, mostInodes(1000, 600))
	assert.EqualValues(t, uncounted, mostInodes(0, 0), "btrfs")
	assert.EqualValues(t, uncounted, mostInodes(50_000, math.MaxUint64), "CephFS")
	assert.EqualValues(t, uncounted, mostInodes(1000, 1000))
}

// The walk ends when it has found more than enough.
func TestAWalkFindsEnough(t *testing.T) {
	dir := t.TempDir()
	for i := range 100 {
		sub := filepath.Join(dir, fmt.Sprint(i))
		require.NoError(t, os.Mkdir(sub, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(sub, "f"), make([]byte, 64<<10), 0o600))
	}
	looked := 0
	ctx := withSteps(t.Context(), func(string) error { looked++; return nil })
	used, _, err := treeUsage(ctx, dir, 1<<20)
	require.NoError(t, err)
	assert.Greater(t, used, int64(1<<20))
	assert.Less(t, looked, 60)
}

// A container knows the inodes of its directories. It plants the name that a directory gets that is
// too deep to be removed where it is, so that this name is listed after the directory.
func TestPlantedNamesOfDeepDirectories(t *testing.T) {
	vol := filepath.Join(testenv.MemoryDir(t), "v")
	require.NoError(t, os.Mkdir(vol, 0o700))
	top, err := unix.Open(vol, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(top) }()
	for tree := range 4 {
		fd, name := top, fmt.Sprintf("tree%d", tree)
		for level := range maxTreeDepth + 10 {
			require.NoError(t, unix.Mkdirat(fd, name, 0o700))
			next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			if level > maxTreeDepth-10 {
				_, ino, err := identify(next)
				require.NoError(t, err)
				for moved := 1; moved < 10; moved++ {
					planted := filepath.Join(vol, fmt.Sprintf(".deep-%d-%d", ino, moved))
					require.NoError(t, os.WriteFile(planted, nil, 0o600))
				}
			}
			if fd != top {
				_ = unix.Close(fd)
			}
			fd, name = next, "d"
		}
		_ = unix.Close(fd)
		if tree%2 == 0 { // some file systems list the newest name first
			require.NoError(t, os.Rename(filepath.Join(vol, fmt.Sprintf("tree%d", tree)),
				filepath.Join(vol, fmt.Sprintf("late%d", tree))))
		}
	}
	require.NoError(t, removeAll(t.Context(), vol))
	assert.NoDirExists(t, vol)
}
