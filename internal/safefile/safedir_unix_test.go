//go:build unix

package safefile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

func TestMakeDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		require.NoError(t, safefile.MakeDir(dir, 0o700))
	}
	st, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), st.Mode().Perm())

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	require.NoError(t, safefile.MakeDir(filepath.Join(link, "c"), 0o700))
	assert.DirExists(t, filepath.Join(dir, "c"))

	// ".." of a link is the parent of what it points to.
	dotted := filepath.Join(t.TempDir(), "dotted")
	require.NoError(t, os.Symlink("../"+filepath.Base(filepath.Dir(link))+"/link/../d", dotted))
	require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(dir), "d"), 0o700))
	require.NoError(t, safefile.MakeDir(dotted, 0o700))
	require.NoError(t, os.Chmod(filepath.Join(filepath.Dir(dir), "d"), 0o777))
	require.ErrorContains(t, safefile.MakeDir(dotted, 0o700), filepath.Join(filepath.Dir(dir), "d")+" has mode 0777")

	loop := filepath.Join(t.TempDir(), "loop")
	require.NoError(t, os.Symlink(loop, loop))
	require.Error(t, safefile.MakeDir(loop, 0o700))
}

func TestDirectoriesThatOthersCanWriteTo(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o777))
	require.ErrorContains(t, safefile.MakeDir(open, 0o700), open+" has mode 0777 and can be written by every user")
	require.ErrorContains(t, safefile.MakeDir(filepath.Join(open, "new"), 0o700), open+" has mode 0777")
	assert.NoDirExists(t, filepath.Join(open, "new"), "nothing is made in it")
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(filepath.Join(open, "target"), link))
	require.ErrorContains(t, safefile.MakeDir(link, 0o700), open+" has mode 0777")

	require.NoError(t, os.Chmod(open, 0o777|os.ModeSticky))
	require.NoError(t, safefile.MakeDir(filepath.Join(open, "new"), 0o700), "a parent such as /tmp")
	require.ErrorContains(t, safefile.MakeDir(open, 0o700), "can be written by every user", "others could plant files")
}

func TestDirectoriesOfOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a directory of another user")
	}
	theirs := filepath.Join(t.TempDir(), "theirs")
	require.NoError(t, os.Mkdir(theirs, 0o755))
	require.NoError(t, os.Chown(theirs, 4012345678, 4012345678))
	require.EqualError(t, safefile.MakeDir(theirs, 0o700), theirs+" belongs to user 4012345678, and this process "+
		"runs as root; "+
		"mend its owner and mode, or choose a directory that only root can write to")
	// As below the home of a user, where sudo is used.
	below := filepath.Join(theirs, "a", "b")
	require.EqualError(t, safefile.MakeDir(below, 0o700), theirs+" belongs to user 4012345678, who can replace "+below+
		", and this process runs as root; "+
		"run it as that user, or choose a directory whose parents belong to root")
	assert.NoDirExists(t, filepath.Join(theirs, "a"), "nothing is made in it")
	// What root has made there can be replaced, too.
	require.NoError(t, os.MkdirAll(below, 0o700))
	require.ErrorContains(t, safefile.MakeDir(below, 0o700), "who can replace "+below)
	group := filepath.Join(t.TempDir(), "group")
	require.NoError(t, os.Mkdir(group, 0o700))
	require.NoError(t, os.Chown(group, 0, 65534))
	require.NoError(t, os.Chmod(group, 0o770))
	require.ErrorContains(t, safefile.MakeDir(group, 0o700), "can be written by group 65534")

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	require.NoError(t, os.Lchown(link, 65534, 65534))
	require.ErrorContains(t, safefile.MakeDir(link, 0o700), link+" belongs to user 65534", "they can aim it elsewhere")
}
