//go:build unix

package mounting_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/mounting"
)

func TestProgram(t *testing.T) {
	output, err := mounting.Program(t.Context(), "sh", "-c", "echo out; echo err >&2; exit 7")
	var failed mounting.ExitCoder
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, 7, failed.ExitCode())
	assert.Equal(t, "out\nerr\n", string(output))

	output, err = mounting.Program(t.Context(), "sh", "-c", "yes | head -c 1000000")
	require.NoError(t, err)
	assert.Len(t, output, 64<<10)

	_, err = mounting.Program(t.Context(), "kubeletkit-none")
	require.ErrorIs(t, err, exec.ErrNotFound)
	assert.False(t, mounting.Has("kubeletkit-none"))
	assert.True(t, mounting.Has("sh"))
}

// The end of the context ends a program with its children, which hold its output open.
func TestProgramEndsWithItsContext(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "started")
	require.NoError(t, exec.Command("mkfifo", pipe).Run())
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := mounting.Program(ctx, "sh", "-c", "trap '' TERM; (echo $$ >"+pipe+"; sleep 1000); sleep 1000")
		done <- err
	}()
	pid, err := os.ReadFile(pipe)
	require.NoError(t, err)
	cancel(assert.AnError)
	require.ErrorIs(t, <-done, assert.AnError)
	require.Eventually(t, func() bool {
		_, err := os.Stat("/proc/" + strings.TrimSpace(string(pid)))
		return errors.Is(err, os.ErrNotExist)
	}, time.Minute, time.Millisecond)
	_, err = mounting.Program(ctx, "sh")
	require.ErrorIs(t, err, assert.AnError)
}
