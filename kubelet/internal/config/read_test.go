package config

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
	data, err := ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "text", string(data))
	_, err = ReadFile("/dev/zero")
	require.EqualError(t, err, "/dev/zero has more than 10 MiB")
}

// A start does not wait for ever for a file system that does not answer.
func TestAFileSystemThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		defer close(answer)
		_, err := soon("/file", time.Second, func() (int, error) { <-answer; return 0, nil })
		require.EqualError(t, err, "/file has not been read within 1s")
	})
}
