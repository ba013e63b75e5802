//go:build unix

package logs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLogsThatAreLeftAlone(t *testing.T) {
	run(t, func(r *rig) {
		pipe, link, outside, moved := r.start("pipe"), r.start("link"), r.start("outside"), r.start("moved")
		r.stop() // what is changed here is not seen before the next manager runs
		target := filepath.Join(t.TempDir(), "victim")
		require.NoError(t, os.WriteFile(target, make([]byte, 20<<10), 0o600))
		for _, c := range []*container{pipe, link} {
			require.NoError(t, os.Remove(c.path))
		}
		require.NoError(t, syscall.Mkfifo(pipe.path, 0o600))
		require.NoError(t, os.Symlink(target, link.path))
		outside.path = target
		// The directory of a log is a link to another one.
		elsewhere := t.TempDir()
		require.NoError(t, os.RemoveAll(filepath.Dir(moved.path)))
		require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "0.log"), make([]byte, 20<<10), 0o600))
		require.NoError(t, os.Symlink(elsewhere, filepath.Dir(moved.path)))
		r.restart()
		time.Sleep(time.Hour)
		assert.FileExists(t, target)
		entries, err := os.ReadDir(elsewhere)
		require.NoError(t, err)
		assert.Len(t, entries, 1)
		assert.Len(t, r.logged(), 5, "two of the last, which cannot be read either: %v", r.logged())
	})
}
