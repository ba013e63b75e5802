package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
)

func TestNodeAddresses(t *testing.T) {
	s, err := config.Parse([]string{"--node-ip=192.0.2.7, 2001:DB8::7", "--hostname-override= Edge-7 "})
	require.NoError(t, err)
	node, err := s.NodeName()
	require.NoError(t, err)
	assert.Equal(t, "edge-7", node)
	h, err := detectHost(s, node)
	require.NoError(t, err)
	assert.Equal(t, []string{"192.0.2.7", "2001:db8::7"}, h.IPs)
	s.NodeIP = "here"
	_, err = detectHost(s, node)
	require.ErrorContains(t, err, `--node-ip "here"`)
}

// What pods can request is what the node object says: without what is reserved, and without
// the thresholds of eviction.
func TestAllocatableOfTheHost(t *testing.T) {
	allocatable := func(args ...string) int64 {
		s, err := config.Parse(args)
		require.NoError(t, err)
		h, err := detectHost(s, "n")
		require.NoError(t, err)
		return h.Allocatable.Memory().Value()
	}
	all := allocatable("--eviction-hard=memory.available<0%")
	assert.Equal(t, all-100<<20, allocatable())
	assert.Equal(t, all-150<<20, allocatable("--system-reserved=memory=50Mi"))
}

// kubelet refuses CPUs that are not part of the machine, too.
func TestReservedCPUsOfAnotherMachine(t *testing.T) {
	if _, err := os.Stat("/sys/devices/system/cpu/online"); err != nil {
		t.Skip("the kernel has no list of the CPUs that are online")
	}
	s, err := config.Parse([]string{"--reserved-cpus=8191"})
	require.NoError(t, err)
	_, err = detectHost(s, "n")
	require.ErrorContains(t, err, `reservedSystemCPUs "8191": not online: 8191; the machine has `)
}
