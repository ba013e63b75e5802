//go:build unix

package crilog_test

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

// A container with a mount of the logs directory can replace logs.
func TestOnlyRegularFilesAreLogs(t *testing.T) {
	dir := t.TempDir()
	secret, pipe, link := filepath.Join(dir, "secret"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	appendTo(t, secret, "hush")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600)) // nobody writes to it
	require.NoError(t, os.Symlink(secret, link))
	for path, text := range map[string]string{pipe: "not a regular file", link: "too many levels of symbolic links",
		dir: "not a regular file"} {
		_, err := crilog.Open(path, -1)
		assert.ErrorContains(t, err, text)
		_, err = crilog.Open(path, 10)
		assert.ErrorContains(t, err, text)
		_, err = crilog.Tail(path, 10, 1000)
		assert.ErrorContains(t, err, text)
	}
}

func TestALogIsReplacedWhileItIsRead(t *testing.T) {
	for name, replace := range map[string]func(path string){
		"pipe": func(path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) },
		"link": func(path string) {
			appendTo(t, path+".secret", "hush")
			require.NoError(t, os.Symlink(path+".secret", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "0.log")
			appendTo(t, path, "one")
			r, err := crilog.Open(path, -1)
			require.NoError(t, err)
			defer r.Close()
			require.Equal(t, "one\n", drain(t, r))
			require.NoError(t, os.Remove(path))
			replace(path)
			assert.Empty(t, drain(t, r))
			require.NoError(t, os.Remove(path))
			appendTo(t, path, "two")
			assert.Equal(t, "two\n", drain(t, r))
		})
	}
}

// A file of a terabyte that takes no disk would be read for minutes.
func TestAHugeLogWithoutLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	appendTo(t, path, "one")
	require.NoError(t, os.Truncate(path, 1<<40))

	r, err := crilog.Open(path, -1)
	require.NoError(t, err)
	defer r.Close()
	l, err := r.Next()
	require.NoError(t, err)
	assert.Equal(t, "one", string(l.Text))
	for range 2 {
		_, err = r.Next()
		require.ErrorIs(t, err, crilog.ErrNoLines)
	}

	last, err := crilog.Open(path, 10)
	require.NoError(t, err)
	defer last.Close()
	_, err = last.Next()
	require.ErrorIs(t, err, io.EOF)
	appendTo(t, path, "ignored: the end of a line that is too long", "two")
	l, err = last.Next()
	require.NoError(t, err)
	assert.Equal(t, "two", string(l.Text))

	end, err := crilog.Tail(path, 1, 100)
	require.NoError(t, err)
	assert.Equal(t, "two\n", string(end))
}
