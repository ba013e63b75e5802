//go:build linux

package early_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "github.com/kubeletkit/kubeletkit/runtime/process/early"
)

// This program does not call process.Init, and its tests are initialised after the package.
func TestASupervisorDoesNotReachMain(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args = []string{"kubeletkit-supervisor", t.TempDir()}
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "only a server of runtime/process starts a program under the name "+
		"kubeletkit-supervisor")
	assert.NotContains(t, string(out), "PASS")
}
