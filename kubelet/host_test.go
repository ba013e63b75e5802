package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/host"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// An agent does not start on a machine that its configuration refuses. Otherwise the machine is one
// line in the log at most, whatever may not be set.
func TestTheMachineIsRefusedOrLoggedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, header)
	for _, args := range [][]string{nil, {"--config", file, "--container-runtime-endpoint=/run/cri.sock"}} {
		s, err := program.Parse(append(args, "--oom-score-adj=-1", "--fail-swap-on=false", "--fail-cgroupv1=false"))
		require.NoError(t, err)
		s.MaxOpenFiles = 0 // that of the test's process stays
		lines := 0
		require.NoError(t, prepareHost(s, funcr.New(func(_, line string) { lines++; t.Log(line) }, funcr.Options{})))
		assert.LessOrEqual(t, lines, 1)
	}
	s, err := program.Parse([]string{"--config", file, "--container-runtime-endpoint=/run/cri.sock", "--fail-cgroupv1"})
	require.NoError(t, err)
	if err = prepareHost(s, funcr.New(func(_, _ string) {}, funcr.Options{})); host.Read().CgroupV1 {
		require.ErrorContains(t, err, "failCgroupV1: the machine has cgroup v1")
	} else {
		require.NoError(t, err)
	}
}

func TestNodeAddresses(t *testing.T) {
	s, err := program.Parse([]string{"--node-ip=192.0.2.7, 2001:DB8::7", "--hostname-override= Edge-7 "})
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
		s, err := program.Parse(args)
		require.NoError(t, err)
		h, err := detectHost(s, "n")
		require.NoError(t, err)
		return h.Allocatable.Memory().Value()
	}
	all := allocatable("--eviction-hard=memory.available<0%")
	assert.Equal(t, all-100<<20, allocatable())
	assert.Equal(t, all-150<<20, allocatable("--system-reserved=memory=50Mi"))
}

// Without localStorageCapacityIsolation, pods cannot request ephemeral storage, as from a kubelet without it, and are
// not evicted for it.
func TestWithoutLocalStorageCapacityIsolation(t *testing.T) {
	for _, isolation := range []bool{true, false} {
		s, err := program.Parse([]string{"--container-runtime-endpoint=unix:///none", "--root-dir", t.TempDir(),
			fmt.Sprintf("--local-storage-capacity-isolation=%t", isolation)})
		require.NoError(t, err)
		opts, err := agentOptions(s, nil, hooks{}, logr.Discard())
		require.NoError(t, err)
		assert.Equal(t, !isolation, opts.NoStorageEviction)
		pod := testpod.New("web", testpod.Container(v1.Container{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Mi")}}}))
		if _, err = opts.Join[len(opts.Join)-1].(lifecycle.Admitter).Admit(lifecycle.AdmitRequest{Pod: pod}); isolation {
			require.NoError(t, err)
			continue
		}
		var refusal *runtime.TerminalError
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, "OutOfephemeral-storage", refusal.Reason)
	}
}

// kubelet refuses CPUs that are not part of the machine, too.
func TestReservedCPUsOfAnotherMachine(t *testing.T) {
	if _, err := os.Stat("/sys/devices/system/cpu/online"); err != nil {
		t.Skip("the kernel has no list of the CPUs that are online")
	}
	s, err := program.Parse([]string{"--reserved-cpus=8191"})
	require.NoError(t, err)
	_, err = detectHost(s, "n")
	require.ErrorContains(t, err, `reservedSystemCPUs "8191": not online: 8191; the machine has `)
}
