package logind_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/shutdown/logind"
)

// A lock does not pass to processes that the agent starts: those of pods outlive it.
func TestLockIsNotInherited(t *testing.T) {
	bus := startBus(t)
	bus.serve(t)
	s, err := logind.New(logind.Options{Address: bus.address}).Connect(t.Context())
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	lock, err := s.Inhibit(t.Context())
	require.NoError(t, err)
	defer func() { _ = lock.Close() }()
	file, ok := lock.(*os.File)
	require.True(t, ok)
	link, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(int(file.Fd()))))
	require.NoError(t, err)
	open, err := exec.Command("sh", "-c", "ls -l /proc/self/fd").CombinedOutput()
	require.NoError(t, err, string(open))
	assert.Contains(t, link, "pipe:")
	assert.NotContains(t, string(open), link)
}
