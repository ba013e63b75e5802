package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A container that writes as fast as it can does not exceed the limit of its log, neither with a server nor without
// one, nor one that began without a limit.
func TestLogLimitAtSpeed(t *testing.T) {
	t.Parallel()
	const maxSize, maxFiles = 1 << 20, 3
	n := startNode(t, Options{})
	p := n.pod()
	p.run(shell("c", "exec yes 'a line of some length, as programs write it'"))
	dir := p.config.GetLogDirectory()
	largest := func() (size int64) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				size = max(size, info.Size())
			}
		}
		return size
	}
	eventually(t, func() bool { return largest() > 2*maxSize }, "the container does not write")
	n.stop()
	n.opts.LogMaxSize, n.opts.LogMaxFiles = maxSize, maxFiles
	n.start()
	rotated := func() (newest string) {
		files, err := filepath.Glob(filepath.Join(dir, "c.log.*"))
		require.NoError(t, err)
		if len(files) > 0 {
			newest = files[len(files)-1]
		}
		return newest
	}
	eventually(t, func() bool { return rotated() != "" && largest() <= maxSize }, "it has no limit")
	hold := func() {
		t.Helper()
		for range 30 {
			last := rotated()
			eventually(t, func() bool { return rotated() != last }, "it is not rotated")
			assert.LessOrEqual(t, largest(), int64(maxSize))
			files, err := filepath.Glob(filepath.Join(dir, "c.log*"))
			require.NoError(t, err)
			assert.LessOrEqual(t, len(files), maxFiles+1, "one is being made")
		}
	}
	hold()
	n.stop()
	hold()
	n.start()
	p.run(shell("d", "yes 'another line' & exec yes 'a third line' >&2"))
	hold()
}
