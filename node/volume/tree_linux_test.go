package volume_test

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// deep makes a chain of directories below dir, with a file of a MiB in the last.
func deep(t *testing.T, dir string, levels int, name string) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	for range levels {
		require.NoError(t, unix.Mkdirat(fd, name, 0o700))
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		_ = unix.Close(fd)
		fd = next
	}
	last, err := unix.Openat(fd, "big", unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	require.NoError(t, err)
	f := os.NewFile(uintptr(last), "big")
	_, err = f.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// fewDescriptors makes the process have few, until the test ends.
func fewDescriptors(t *testing.T) {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(was.Cur, 200), Max: was.Max}))
	t.Cleanup(func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) })
}

// A container can make a tree whose paths are longer than any path may be, and that is
// deeper than the agent has descriptors.
func TestADeepTree(t *testing.T) {
	for _, tt := range []struct {
		name    string
		levels  int
		limit   string
		message string
		hidden  bool
	}{
		{"the size is found", 1500, "512Ki", `Usage of EmptyDir volume "v" exceeds the limit "512Ki". `, false},
		{"the tree cannot be measured", 4096 + 100, "64Mi", `EmptyDir volume "v" with the limit "64Mi" cannot be measured: a directory is more than 4096 levels deep. `, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, dir := newManager(t), testenv.MemoryDir(t)
			p := pod(emptyDir("v", v1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse(tt.limit))}))
			got, err := m.SetUp(t.Context(), p, dir)
			require.NoError(t, err)
			deep(t, got["v"].HostPath, tt.levels, strings.Repeat("x", 10))
			fewDescriptors(t)
			message, err := m.Exceeded(t.Context(), p, dir)
			require.NoError(t, err)
			assert.Equal(t, tt.message, message)
			used, err := m.Usage(t.Context(), p, dir)
			assert.Equal(t, tt.hidden, err != nil, "%v", err)
			assert.Equal(t, tt.hidden, used == math.MaxInt64, "%d bytes", used)
			require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(p), dir))
			assert.NoDirExists(t, dir)
		})
	}
}

func TestMeasuringManyFilesTakesLittleMemory(t *testing.T) {
	m, dir := newManager(t), testenv.MemoryDir(t)
	p := pod(emptyDir("v", v1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Gi"))}))
	got, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	const files = 5000
	for i := range files {
		require.NoError(t, os.WriteFile(filepath.Join(got["v"].HostPath, strconv.Itoa(i)), nil, 0o600))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	message, err := m.Exceeded(t.Context(), p, dir)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	assert.Empty(t, message)
	assert.Less(t, int(after.TotalAlloc-before.TotalAlloc), files*64, "nothing but names")
	require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(p), dir))
	assert.NoDirExists(t, dir)
}

// A wide tree, and files with several names, which count once.
func TestUsageOfATree(t *testing.T) {
	m, dir := newManager(t), t.TempDir()
	p := pod(emptyDir("v", v1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("40Mi"))}))
	got, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	at := got["v"].HostPath
	for i := range 300 { // more than one read of a directory
		sub := filepath.Join(at, strconv.Itoa(i), "sub")
		require.NoError(t, os.MkdirAll(sub, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(sub, "f"), make([]byte, 64<<10), 0o600))
		for n := range 3 {
			require.NoError(t,
				os.Link(filepath.Join(sub, "f"), filepath.Join(at, strconv.Itoa(i), "link"+strconv.Itoa(n))))
		}
	}
	message, err := m.Exceeded(t.Context(), p, dir)
	require.NoError(t, err)
	assert.Empty(t, message, "300 files of 64 KiB")
	p.Spec.Volumes[0].EmptyDir.SizeLimit = ptr.To(resource.MustParse("18Mi"))
	message, err = m.Exceeded(t.Context(), p, dir)
	require.NoError(t, err)
	assert.NotEmpty(t, message)
	require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(p), dir))
	assert.NoDirExists(t, dir)
}
