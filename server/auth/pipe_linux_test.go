package auth_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/server/auth"
)

func TestNobodyWaitsForAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600)) // it has no writer
	_, err := auth.NewTokenFile(pipe, logr.Discard())
	require.ErrorContains(t, err, "not a regular file")
}
