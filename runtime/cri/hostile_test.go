//go:build unix

package cri_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// Containers can write to the hosts file of their pod: it is mounted into them.
func TestHostsFileThatAContainerHasChanged(t *testing.T) {
	hosts := func(t *testing.T, change func(path string)) (path string, err error) {
		svc := newService(t, "app:1")
		s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
		path = filepath.Join(s.dir, "pod", "etc-hosts")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		change(path)
		_, err = s.sync()
		return path, err
	}
	untouched, err := hosts(t, func(string) {})
	require.NoError(t, err)
	want, err := os.ReadFile(untouched)
	require.NoError(t, err)
	require.Contains(t, string(want), "10.0.0.7")

	for name, change := range map[string]func(path string){
		"huge": func(path string) {
			require.NoError(t, os.WriteFile(path, want, 0o600))
			require.NoError(t, os.Truncate(path, 1<<40)) // takes no disk
		},
		"more": func(path string) { require.NoError(t, os.WriteFile(path, append(want, '\n'), 0o600)) },
		"less": func(path string) { require.NoError(t, os.WriteFile(path, want[:10], 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			path, err := hosts(t, change)
			require.NoError(t, err)
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.EqualValues(t, len(want), info.Size())
			assert.Equal(t, os.FileMode(0o644), info.Mode().Perm())
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(got))
		})
	}
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("hush"), 0o600))
	for name, tt := range map[string]struct {
		change func(path string)
		err    string
	}{
		"pipe": {func(path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) }, "not a regular file"},
		"link": {func(path string) { require.NoError(t, os.Symlink(secret, path)) }, "too many levels of symbolic links"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := hosts(t, tt.change)
			require.ErrorContains(t, err, tt.err)
			require.True(t, strings.Contains(err.Error(), "container a"), err)
		})
	}
	kept, err := os.ReadFile(secret)
	require.NoError(t, err)
	assert.Equal(t, "hush", string(kept))
}
