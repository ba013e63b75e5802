package cgroup

import (
	"os"
	"testing"

	"github.com/opencontainers/cgroups/systemd"
	"github.com/stretchr/testify/require"
)

// onGuest runs the tests with real cgroups on a machine with cgroup v2.
func onGuest(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("runs in a guest only")
	}
	require.True(t, kernelTree(libraryMount).unified(), "cgroup v2")
	t.Run("settings", TestRealCgroups)
	t.Run("memory QoS", TestRealMemoryQoS)
	t.Run("resize", TestRealResize)
	t.Run("limit below the usage", TestRealLimitBelowUsage)
	t.Run("CPU time", TestRealCPUTime)
	t.Run("removal by others", TestRealRemoval)
	t.Run("read-only", TestRealReadOnly)
}

// With cgroup v2 and the driver cgroupfs.
func TestGuestManager(t *testing.T) { onGuest(t) }

// With cgroup v2 and both drivers, below systemd.
func TestGuestSystemdManager(t *testing.T) {
	onGuest(t)
	require.True(t, systemd.IsRunningSystemd())
}
