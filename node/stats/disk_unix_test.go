//go:build unix

package stats

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is in the place of a directory of logs is not waited for.
func TestLogDirectoryThatIsNone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	require.NoError(t, syscall.Mkfifo(dir, 0o600))
	measured := make(chan tree, 1)
	go func() { measured <- sizeOfFiles(dir) }()
	select {
	case size := <-measured:
		assert.Zero(t, size)
	case <-time.After(10 * time.Second):
		t.Error("it waits for the other end of the pipe")
		f, err := os.OpenFile(dir, os.O_RDWR, 0) // lets it end
		require.NoError(t, err)
		defer f.Close()
		<-measured
	}
}
