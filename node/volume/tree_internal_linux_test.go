package volume

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A container that moves the current directory does not lead a walk out of the volume.
func TestTreeThatMoves(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "vol", "a", "b"), 0o700))
	tree, err := openTree(filepath.Join(dir, "vol"))
	require.NoError(t, err)
	defer tree.close()
	require.NoError(t, tree.down("a", 0))
	require.NoError(t, tree.down("b", 0))
	require.NoError(t, os.Rename(filepath.Join(dir, "vol", "a", "b"), filepath.Join(dir, "b")))
	_, err = tree.up()
	require.ErrorIs(t, err, errMoved)
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "b", "link")))
	require.Error(t, tree.down("link", 0))
	require.Error(t, tree.down("none", 0))
}
