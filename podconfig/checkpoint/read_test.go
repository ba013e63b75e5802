package checkpoint_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
)

// Read returns what Load does, and leaves what cannot be used.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	pods, err := checkpoint.Read(t.Context(), dir)
	require.NoError(t, err)
	assert.Empty(t, pods)

	s, err := checkpoint.New(dir, checkpoint.Options{})
	require.NoError(t, err)
	s.Keep(makePod("b"))
	s.Keep(makePod("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.Run(ctx)) // writes what is due
	bad := []string{"bad.checkpoint", "foreign", "a.checkpoint.new"}
	for _, name := range bad {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pods", name), []byte("x"), 0o600))
	}
	pods, err = checkpoint.Read(t.Context(), dir)
	require.ErrorContains(t, err, "bad.checkpoint")
	require.Len(t, pods, 2)
	assert.Equal(t, "a", pods[0].Name)
	for _, name := range bad {
		assert.FileExists(t, filepath.Join(dir, "pods", name))
	}
	assert.NoDirExists(t, filepath.Join(dir, "aside"))
}
