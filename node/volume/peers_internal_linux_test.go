package volume

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParsePeers(t *testing.T) {
	peers, err := parsePeers(strings.NewReader(strings.Join([]string{
		"20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/a rw",
		"21 20 8:1 /data /pods/u1/a\\040b rw shared:1 - ext4 /dev/a rw",
		"22 20 8:1 /data /pods/u1/slave rw shared:4 master:1 - ext4 /dev/a rw",
		"23 20 0:5 / /pods/u1/own rw shared:2 - tmpfs shared:1 rw",
		"24 20 0:6 / /pods/u1/private rw - tmpfs tmpfs rw",
		"25 20 8:1 /data /pods/u10 rw shared:3 - ext4 /dev/a rw",
		"26 23 8:2 / /pods/u1/own/b rw shared:3 - ext4 /dev/b rw",
		"short",
		"",
	}, "\n")), "/pods/u1")
	require.NoError(t, err)
	assert.Equal(t, []string{"/pods/u1/a b", "/pods/u1/own/b"}, peers)
}

func TestNested(t *testing.T) {
	for points, want := range map[string]bool{
		"":                false,
		"/a":              false,
		"/a /a-b /b":      false,
		"/a/b /c /a":      true,
		"/a /a-b /a/b/c":  true,
		"/a /b /a":        true,
		"/a/b /a/c /a/bc": false,
	} {
		assert.Equal(t, want, nested(strings.Fields(points)), points)
	}
}
