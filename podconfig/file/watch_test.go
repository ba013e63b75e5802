package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
)

// TestWatchLimit has a kernel that refuses to watch: periodic scans go on, and one log
// line has the reason. When the kernel accepts again, the path is watched.
func TestWatchLimit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(s *file.Source, refuses *atomic.Bool)
		hint    string
	}{
		"of instances": {func(s *file.Source, refuses *atomic.Bool) {
			s.SetKernel(func() (*fswatch.Watcher, error) {
				if refuses.Load() {
					return nil, fswatch.Refused(os.NewSyscallError("inotify_init1", syscall.EMFILE))
				}
				return fswatch.Open()
			}, nil)
		}, "fs.inotify.max_user_instances"},
		"of watches": {func(s *file.Source, refuses *atomic.Bool) {
			s.SetKernel(nil, func(w *fswatch.Watcher, path string) error {
				if refuses.Load() {
					return fswatch.Refused(syscall.ENOSPC)
				}
				return w.Add(path)
			})
		}, "fs.inotify.max_user_watches"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "a.yaml"), manifestOf("a", "1"))
			var refuses atomic.Bool
			refuses.Store(true)
			lines := make(chan string, 1000)
			logger := funcr.New(func(_, args string) { lines <- args }, funcr.Options{})
			r := launch(t, dir, file.Options{CheckFrequency: time.Millisecond, Logger: logger},
				func(s *file.Source) { tc.prepare(s, &refuses) })
			r.expect("a=1")
			for i := range 3 {
				replace(t, filepath.Join(dir, "a.yaml"), manifestOf("a", fmt.Sprint("x", i)))
				r.expect(fmt.Sprint("a=x", i))
			}
			refuses.Store(false)
			var logged []string
			await(t, lines, func(line string) bool {
				logged = append(logged, line)
				return strings.Contains(line, "reports changes of the manifests again")
			})
			require.Len(t, logged, 2, "each logged once")
			assert.Contains(t, logged[0], "only the periodic scan finds them")
			assert.Contains(t, logged[0], tc.hint)
			assert.Empty(t, r.problems, "the manifests are valid")
		})
	}
}

// TestLostEvents makes more changes than are kept while the source is busy. The source finds the lost changes without a
// periodic scan.
func TestLostEvents(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "manifests")
	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, filepath.Join(dir, "a.yaml"), manifestOf("a", "1"))

	lines, begun, busy, sets := make(chan string, 1000), make(chan struct{}, 1000), make(chan struct{}),
		make(chan []string, 1000)
	logger := funcr.New(func(_, args string) { lines <- args }, funcr.Options{})
	s := file.New(dir, file.Options{CheckFrequency: time.Hour, Logger: logger})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- s.Run(ctx, sink(func(pods []*v1.Pod) {
			begun <- struct{}{}
			<-busy
			sets <- describe(pods)
		}))
	}()
	<-begun
	for i := range fswatch.MaxPaths + 1000 {
		write(t, filepath.Join(dir, strconv.Itoa(i)), "")
	}
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, filepath.Join(dir, "b.yaml"), manifestOf("b", "1"))
	close(busy)
	await(t, sets, func(got []string) bool { return slices.Equal(got, []string{"b=1"}) })
	await(t, lines,
		func(line string) bool { return strings.Contains(line, "Events of the manifest directory were lost") })
	// The new directory is watched.
	write(t, filepath.Join(dir, "b.yaml"), manifestOf("b", "2"))
	await(t, sets, func(got []string) bool { return slices.Equal(got, []string{"b=2"}) })
	cancel()
	require.NoError(t, <-done)
}

// await reads the channel until a wanted value comes.
func await[T any](t *testing.T, c <-chan T, wanted func(T) bool) {
	t.Helper()
	var got []T
	for deadline := time.After(timeout); ; {
		select {
		case v := <-c:
			if wanted(v) {
				return
			}
			got = append(got, v)
		case <-deadline:
			require.Fail(t, "it never came", got)
		}
	}
}

// TestLinkedDirectory switches a link from one directory to another, as tools do that
// check out repositories.
func TestLinkedDirectory(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	link := filepath.Join(parent, "current")
	turn := func(version string) {
		dir := filepath.Join(parent, version)
		require.NoError(t, os.Mkdir(dir, 0o700))
		write(t, filepath.Join(dir, "a.yaml"), manifestOf("a", version))
		require.NoError(t, os.Symlink(version, link+".new"))
		require.NoError(t, os.Rename(link+".new", link))
	}
	turn("1")
	r := start(t, link, 0)
	r.expect("a=1")
	turn("2")
	r.expect("a=2")
	write(t, filepath.Join(parent, "2", "a.yaml"), manifestOf("a", "3"))
	r.expect("a=3")
}

// TestMissingParent has a path whose parent does not exist.
func TestMissingParent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "etc", "manifests")
	r := start(t, dir, 5*time.Millisecond)
	r.expect()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	write(t, filepath.Join(dir, "a.yaml"), manifestOf("a", "1"))
	r.expect("a=1")
	assert.Empty(t, r.problems)
}

// TestWrittenInPlace writes a file in pieces. Only the last piece makes it valid.
func TestWrittenInPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir, 0)
	r.expect()
	f, err := os.Create(filepath.Join(dir, "a.yaml"))
	require.NoError(t, err)
	defer f.Close()
	for _, piece := range strings.SplitAfter(manifestOf("a", "1"), "\n") {
		_, err := f.WriteString(piece)
		require.NoError(t, err)
	}
	r.expect("a=1")
}
