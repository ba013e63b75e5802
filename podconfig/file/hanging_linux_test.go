package file_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
)

// Manifests that are links to files whose reads do not end are problems of these files. The others are read, at once
// from then on, and the source ends.
func TestFilesThatHang(t *testing.T) {
	hanging, answer := testenv.HangingDir(t)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(hanging, "a"), filepath.Join(dir, "bad.yaml")))
	bad := []string{"bad.yaml: "}
	if f, err := os.Open("/proc/kmsg"); err == nil {
		require.NoError(t, f.Close())
		require.NoError(t, os.Symlink("/proc/kmsg", filepath.Join(dir, "messages.yaml")))
		bad = append(bad, "messages.yaml: ")
	}
	write(t, filepath.Join(dir, "good.yaml"), manifestOf("good", "v1"))
	r := launch(t, dir, file.Options{CheckFrequency: time.Hour},
		func(s *file.Source) { s.SetReadTimeout(500 * time.Millisecond) })
	r.expect("good=v1")
	for range bad {
		r.expectProblem("no answer from the file system within 500ms")
	}
	replace(t, filepath.Join(dir, "good.yaml"), manifestOf("good", "v2"))
	r.expect("good=v2")
	write(t, filepath.Join(dir, "other.yaml"), manifestOf("other", "v1"))
	r.expect("good=v2", "other=v1")
	require.NoError(t, os.Remove(filepath.Join(dir, "good.yaml")))
	r.expect("other=v1")

	began := time.Now()
	r.stop()
	assert.Less(t, time.Since(began), timeout)
	r.stop = func() {}
	answer()
	_, err := file.ReadFile(t.Context(), filepath.Join(dir, "bad.yaml"))
	require.Error(t, err)
}

// A directory that hangs delivers nothing, and does not keep the source from ending.
func TestADirectoryThatHangs(t *testing.T) {
	hanging, _ := testenv.HangingDir(t)
	r := launch(t, hanging, file.Options{CheckFrequency: time.Hour},
		func(s *file.Source) { s.SetReadTimeout(100 * time.Millisecond) })
	r.expectProblem("manifests cannot be read, their last valid content stays: read " + hanging + ": no answer")
	r.stop()
	assert.Empty(t, r.sets)
	r.stop = func() {}
}

// A watch that hangs is replaced by the periodic scan, and closed when the kernel answers.
func TestAWatchThatHangs(t *testing.T) {
	dir, answer := t.TempDir(), make(chan struct{})
	write(t, filepath.Join(dir, "a.yaml"), manifestOf("a", "v1"))
	hung, closed := make(chan *fswatch.Watcher, 1), errors.New("not opened")
	r := launch(t, dir, file.Options{CheckFrequency: 10 * time.Millisecond}, func(s *file.Source) {
		s.SetReadTimeout(100 * time.Millisecond)
		s.SetKernel(nil, func(w *fswatch.Watcher, path string) error {
			select {
			case hung <- w:
			default:
			}
			<-answer
			return w.Add(path)
		})
	})
	r.expect("a=v1")
	replace(t, filepath.Join(dir, "a.yaml"), manifestOf("a", "v2"))
	r.expect("a=v2")
	r.stop()
	r.stop = func() {}
	close(answer)
	w := <-hung
	require.Eventually(t, func() bool { closed = w.Add(dir); return errors.Is(closed, fswatch.ErrClosed) }, timeout,
		time.Millisecond, closed)
}
