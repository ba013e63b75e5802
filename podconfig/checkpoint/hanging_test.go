package checkpoint

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
)

// An agent starts without its checkpoint if the file system of it does not answer.
func TestADirectoryThatHangs(t *testing.T) {
	dir, _ := testenv.HangingDir(t)
	var lines []string
	s, err := New(filepath.Join(dir, "checkpoint"),
		Options{Logger: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})})
	require.NoError(t, err)
	s.pods.reader.Timeout = 100 * time.Millisecond
	assert.Empty(t, s.Load(t.Context()))
	require.Len(t, lines, 3)
	assert.Contains(t, lines[0], "Checkpoints of pods cannot be read; pods come back when their sources deliver them")
	assert.Contains(t, lines[0], "no answer from the file system within 100ms")
	var state int
	assert.False(t, s.LoadState("services", &state))
	assert.Contains(t, lines[3], "Checkpoint cannot be used now; it stays where it is")
}
