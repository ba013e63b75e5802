package safefile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// A container chooses the names and the links in its volume. ReadFileIn reads what package os
// reads below a root, but for what is no regular file.
func FuzzReadFileIn(f *testing.F) {
	f.Add("a/l/../f", "../a/f")
	f.Add("l", "..")
	f.Add("a/l", "b/../f")
	f.Add("l/f/", "a/.")
	f.Fuzz(func(t *testing.T, name, target string) {
		if len(name) > 200 || len(target) > 200 || strings.ContainsRune(name+target, 0) {
			return
		}
		vol := filepath.Join(t.TempDir(), "vol")
		require.NoError(t, os.MkdirAll(filepath.Join(vol, "a", "b"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(vol, "a", "f"), []byte("text"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(vol, "..", "secret"), []byte("hush"), 0o600))
		for _, link := range []string{"l", "a/l"} {
			if os.Symlink(target, filepath.Join(vol, link)) != nil {
				return
			}
		}
		root, err := os.OpenRoot(vol)
		require.NoError(t, err)
		defer func() { _ = root.Close() }()
		want, wantErr := root.ReadFile(name)
		got, err := safefile.ReadFileIn(vol, name, 100)
		require.Equal(t, wantErr == nil, err == nil, "%v and %v", wantErr, err)
		require.Equal(t, string(want), string(got))
	})
}
