package config

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckpointKey(t *testing.T) {
	raw := strings.Repeat("k", 32)
	for _, test := range []struct{ name, content, want, err string }{
		{"raw", raw, raw, ""},
		{"base64, as openssl rand -base64 32 writes it", base64.StdEncoding.EncodeToString([]byte(raw)) + "\n", raw, ""},
		{"too short", "secret", "", "must have 16, 24 or 32 bytes"},
		{"empty", "", "", "must have 16, 24 or 32 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			require.NoError(t, os.WriteFile(path, []byte(test.content), 0o600))
			key, err := readKey(path)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, test.want, string(key))
		})
	}
}
