package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
)

func TestTopology(t *testing.T) {
	const endpoint = "--container-runtime-endpoint=unix:///run/containerd/containerd.sock"
	s, err := program.Parse([]string{"--pod-manifest-path=/etc/m", endpoint})
	require.NoError(t, err)
	assert.False(t, s.StaticCPUs())
	assert.Equal(t, []string{"none", "none", "container"}, []string{s.CPUManagerPolicy, s.TopologyManagerPolicy,
		s.TopologyManagerScope})

	s, err = parsed(t, header,
		"--pod-manifest-path=/etc/m", endpoint, "--cpu-manager-policy=static",
		"--cpu-manager-policy-options=full-pcpus-only=true",
		"--cpu-manager-policy-options=distribute-cpus-across-numa=true",
		"--topology-manager-policy=restricted", "--topology-manager-scope=pod",
		"--topology-manager-policy-options=prefer-closest-numa-nodes=true,max-allowable-numa-nodes=9",
		"--system-reserved=cpu=500m", "--kube-reserved=cpu=600m",
		"--reset-cpu-manager-state")
	require.NoError(t, err)
	assert.Empty(t, s.Warnings)
	assert.True(t, s.StaticCPUs())
	opts, err := s.CPUOptions()
	require.NoError(t, err)
	assert.Equal(t, 2, opts.ReservedCount)
	assert.True(t, opts.Reset)
	assert.Equal(t, cpus.PolicyOptions{FullPCPUsOnly: true, DistributeNUMA: true}, opts.PolicyOptions)
	topts, err := s.TopologyOptions()
	require.NoError(t, err)
	assert.Equal(t, topology.PolicyOptions{PreferClosest: true, MaxAllowable: 9}, topts)

	s, err = program.Parse([]string{"--pod-manifest-path=/etc/m", endpoint, "--cpu-manager-policy=static",
		"--reserved-cpus=0,4"})
	require.NoError(t, err)
	opts, err = s.CPUOptions()
	require.NoError(t, err)
	assert.Equal(t, "0,4", opts.Reserved.String())
}

func TestTopologyThatCannotBe(t *testing.T) {
	static := []string{"--cpu-manager-policy=static", "--reserved-cpus=0"}
	for _, tc := range []struct {
		args []string
		err  string
	}{
		{[]string{"--topology-manager-policy=strict"}, `topologyManagerPolicy "strict": must be none, best-effort, restricted or single-numa-node`},
		{[]string{"--topology-manager-scope=node"}, `topologyManagerScope "node": must be container or pod`},
		{[]string{"--topology-manager-policy=restricted", "--topology-manager-policy-options=max-allowable-numa-nodes=4"}, "4 must be at least 8"},
		{[]string{"--cpu-manager-policy=dynamic"}, `cpuManagerPolicy "dynamic": must be none or static`},
		{[]string{"--cpu-manager-policy-options=full-pcpus-only=true"}, "cpuManagerPolicyOptions: need cpuManagerPolicy static"},
		{[]string{"--cpu-manager-policy=static"}, "no CPU is reserved; give systemReserved or kubeReserved some cpu"},
		{append(static, "--cpu-manager-policy-options=align-by-socket=true"), "cpuManagerPolicyOptions.align-by-socket: needs the feature gate CPUManagerPolicyAlphaOptions"},
		{append(static, "--cpu-manager-policy-options=distribute-cpus-across-numa=true", "--feature-gates=CPUManagerPolicyBetaOptions=false"), "needs the feature gate CPUManagerPolicyBetaOptions"},
		{append(static, "--cpu-manager-policy-options=fast=true"), `option "fast" is unknown`},
	} {
		_, err := program.Parse(append([]string{"--pod-manifest-path=/etc/m",
			"--container-runtime-endpoint=unix:///run/c.sock"}, tc.args...))
		assert.ErrorContains(t, err, tc.err, tc.args)
	}
}
