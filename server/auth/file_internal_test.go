package auth

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Requests do not wait for a file that another one reads.
func TestOneReadsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		f, err := newFile(path, "values", logr.Discard(), func(content []byte) (string, error) {
			if string(content) == "new" {
				time.Sleep(time.Minute)
			}
			return string(content), nil
		})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, []byte("new"), 0o600))
		time.Sleep(filePeriod)
		go func() { assert.Equal(t, "new", f.get()) }()
		time.Sleep(30 * time.Second)
		began := time.Now()
		assert.Equal(t, "old", f.get())
		assert.Equal(t, began, time.Now())
		time.Sleep(time.Minute)
		assert.Equal(t, "new", f.get())
	})
}
