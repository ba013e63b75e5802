package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
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

func TestCheckpointDir(t *testing.T) {
	s, err := parse([]string{"--root-dir", "/r"})
	require.NoError(t, err)
	assert.Equal(t, "/r/podcheckpoint", s.CheckpointDir)
	s, err = parse([]string{"--checkpoint-dir", ""})
	require.NoError(t, err)
	store, err := s.checkpoint(logr.Discard())
	require.NoError(t, err)
	assert.Nil(t, store)
	s, err = parse([]string{"--checkpoint-key-file", "/nowhere"})
	require.NoError(t, err)
	_, err = s.checkpoint(logr.Discard())
	assert.ErrorContains(t, err, "reading the key of the checkpoint")
}
