package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The record of a claim may have any content: it has a path, or the claim is looked up again.
func FuzzBoundVolume(f *testing.F) {
	f.Add([]byte(`{"path":"/mnt/a","local":true,"options":["ro"],"group":3,"name":"pv"}`))
	f.Add([]byte(`{"path":"","host":true}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "volume")
		require.NoError(t, os.WriteFile(file, data, 0o600))
		b, found := readBound(file)
		if !found {
			require.Zero(t, b)
			return
		}
		require.NotEmpty(t, b.Path)
		require.NoError(t, b.write(file, nil))
		again, found := readBound(file)
		require.True(t, found)
		require.Equal(t, b.Path, again.Path)
		require.Equal(t, len(b.Options), len(again.Options))
	})
}

// A file of a terabyte is not read.
func TestHugeStateFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "volume")
	require.NoError(t, os.WriteFile(file, []byte(`{"path":"/a"}`), 0o600))
	require.NoError(t, os.Truncate(file, 1<<40))
	_, found := readBound(file)
	require.False(t, found)
	require.False(t, hasPath(file, "/a"))
}

// Peers are mounts of the pod, and each has a peer elsewhere.
func FuzzParsePeers(f *testing.F) {
	f.Add("21 20 8:1 /data /pods/u1/a\\040b rw shared:1 - ext4 /dev/a rw\n20 1 8:1 / / rw shared:1 - ext4 /dev/a rw\n",
		"/pods/u1")
	f.Add("36 35 98:0 / /pods/u10 rw shared:1 master:2\nx\n1 2 3 4 5 \n", "/pods/u1")
	f.Fuzz(func(t *testing.T, data, dir string) {
		peers, err := parsePeers(strings.NewReader(data), dir)
		if err != nil {
			return
		}
		points, err := parseMountInfo(strings.NewReader(data), dir)
		require.NoError(t, err)
		for _, p := range peers {
			require.Contains(t, points, p)
		}
		require.LessOrEqual(t, len(peers), max(0, strings.Count(data, "shared:")-1))
	})
}
