package credentials

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLikeKubelet compares with testdata/kubelet.json, which was written by the package credentialprovider of kubelet
// 1.36.3 for random locations: the order of credentials with their hashes, and which patterns match an image.
func TestLikeKubelet(t *testing.T) {
	data, err := os.ReadFile("testdata/kubelet.json")
	require.NoError(t, err)
	var kubelet struct {
		Lookups []struct {
			Entries       []struct{ Location, Username, Password, Email string }
			Image         string
			Users, Hashes []string
		}
		Globs []struct {
			Glob, Image string
			Match, Bad  bool
		}
	}
	require.NoError(t, json.Unmarshal(data, &kubelet))
	require.NotEmpty(t, kubelet.Lookups)
	for _, v := range kubelet.Lookups {
		var ring keyring
		for _, e := range v.Entries {
			// some are no registry
			_ = ring.add(map[string]*dockerEntry{e.Location: {Username: e.Username, Password: e.Password,
				Email: e.Email}}, nil, nil)
		}
		ring.sort()
		var users, hashes []string
		for _, c := range ring.lookup(v.Image) {
			users, hashes = append(users, c.Username), append(hashes, c.Hash())
		}
		assert.Equal(t, v.Users, users, "%+v", v)
		assert.Equal(t, v.Hashes, hashes, "%+v", v)
	}
	require.NotEmpty(t, kubelet.Globs)
	for _, g := range kubelet.Globs {
		location, err := patternOf(g.Glob)
		assert.Equal(t, g.Bad, err != nil, "%+v", g)
		assert.Equal(t, g.Match, err == nil && locationCovers(location, g.Image), "%+v", g)
	}
}
