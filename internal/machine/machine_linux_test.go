package machine_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/machine"
)

func TestFacts(t *testing.T) {
	total, err := machine.TotalMemory()
	require.NoError(t, err)
	assert.Greater(t, total, int64(16<<20))
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimSpace(string(release)), machine.KernelRelease())
}
