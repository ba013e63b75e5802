package config

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// Key returns the key that encrypts the checkpoint, or nil if none is given.
func (s *Settings) Key() ([]byte, error) {
	if s.CheckpointKey == "" {
		return nil, nil
	}
	return readKey(s.CheckpointKey)
}

// readKey reads a key that is stored as it is or in base64.
func readKey(path string) ([]byte, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the checkpoint: %w", err)
	}
	// 32 bytes can also be base64 of 24. A file that is a key as it stands is the key.
	if isKey(data) {
		return data, nil
	}
	if key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(data))); err == nil && isKey(key) {
		return key, nil
	}
	return nil, fmt.Errorf("the key of the checkpoint, %s: must have 16, 24 or 32 bytes, or as many in base64", path)
}

func isKey(b []byte) bool { return len(b) == 16 || len(b) == 24 || len(b) == 32 }
