package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
)

// checkpointDir is the flag of the directory that keeps the pods.
const checkpointDir = "checkpoint-dir"

// checkpoint returns the store that keeps the pods; nil if none is to.
func (s *settings) checkpoint(log logr.Logger) (*checkpoint.Store, error) {
	if s.CheckpointDir == "" {
		return nil, nil
	}
	opts := checkpoint.Options{Logger: log.WithName("checkpoint")}
	if s.CheckpointKey != "" {
		var err error
		if opts.Key, err = readKey(s.CheckpointKey); err != nil {
			return nil, err
		}
	}
	return checkpoint.New(s.CheckpointDir, opts)
}

// readKey reads a key, as it is or in base64.
func readKey(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the checkpoint: %w", err)
	}
	// 32 bytes, say, could also be base64 of 24: what is a key by itself is one.
	if isKey(data) {
		return data, nil
	}
	if key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(data))); err == nil && isKey(key) {
		return key, nil
	}
	return nil, fmt.Errorf("the key of the checkpoint, %s: must have 16, 24 or 32 bytes, or as many in base64", path)
}

func isKey(b []byte) bool { return len(b) == 16 || len(b) == 24 || len(b) == 32 }
