package trustbundles

import (
	"encoding/pem"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is in bundles, their certificates are left, each once, without anything else.
func FuzzNormalize(f *testing.F) {
	f.Add("# of a\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"-----BEGIN CERTIFICATE-----\nof: b\n\nAAAA\n-----END CERTIFICATE-----\n")
	f.Add("-----BEGIN KEY-----\nAAAA\n-----END KEY-----\n-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", "")
	f.Fuzz(func(t *testing.T, a, b string) {
		out := string(normalize("uid", []string{a, b}))
		require.Equal(t, out, string(normalize("uid", []string{b, a})))
		require.Equal(t, out, string(normalize("uid", []string{out})))
		blocks := map[string]bool{}
		for rest := []byte(out); len(rest) > 0; {
			require.True(t, strings.HasPrefix(string(rest), "-----BEGIN CERTIFICATE-----\n"), "%q", rest)
			var block *pem.Block
			block, rest = pem.Decode(rest)
			require.NotNil(t, block)
			require.Empty(t, block.Headers)
			require.False(t, blocks[string(block.Bytes)])
			blocks[string(block.Bytes)] = true
		}
		block, _ := pem.Decode([]byte(a))
		require.True(t, block == nil || blocks[string(block.Bytes)])
	})
}
