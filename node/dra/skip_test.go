package dra

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
)

type skips = []resourceapi.SkipNodeOperation

// A driver skips what all its devices in the claim skip, as in kubelet's computeDriverStates.
func TestDriversOf(t *testing.T) {
	const all, prepares, unprepares = resourceapi.SkipNodeOperationAll,
		resourceapi.SkipNodeOperationNodePrepareResources, resourceapi.SkipNodeOperationNodeUnprepareResources
	for _, tc := range []struct {
		devices []skips
		want    skips
	}{
		{[]skips{nil}, nil},
		{[]skips{{all}}, skips{all}},
		{[]skips{{all, unprepares}, {all}}, skips{all}},
		{[]skips{{unprepares, prepares}}, skips{prepares, unprepares}},
		{[]skips{{unprepares, prepares}, {unprepares}}, skips{unprepares}},
		{[]skips{{all}, {"New", unprepares}}, skips{"New", unprepares}},
		{[]skips{{unprepares}, {all}}, skips{unprepares}},
		{[]skips{{all}, nil}, nil},
		{[]skips{nil, {all}}, nil},
		{[]skips{{prepares}, {unprepares}}, nil},
	} {
		claim := &resourceapi.ResourceClaim{}
		claim.Status.Allocation = &resourceapi.AllocationResult{}
		results := &claim.Status.Allocation.Devices.Results
		for _, s := range tc.devices {
			*results = append(*results, resourceapi.DeviceRequestAllocationResult{Driver: "a", SkipNodeOperations: s})
		}
		*results = append(*results, resourceapi.DeviceRequestAllocationResult{Driver: "b"})
		got := driversOf(claim)
		assert.ElementsMatch(t, tc.want, got["a"], tc)
		assert.IsIncreasing(t, append(skips{""}, got["a"]...), tc)
		assert.Empty(t, got["b"])
		assert.Len(t, got, 2)
	}
}

// A driver whose devices skip an operation is not called for it, also by the next agent, and need not be there.
func TestSkippedOperations(t *testing.T) {
	node := nodefake.NewNode()
	m, api, d := withDriver(t, Options{SkipOperations: true})
	require.NoError(t, m.Join(node))
	a := podWith("a", "gpu")
	claim := api.set("gpu", []string{"gpu.example.com", "absent.example.com"}, a)
	results := claim.Status.Allocation.Devices.Results
	results[0].SkipNodeOperations = skips{resourceapi.SkipNodeOperationNodeUnprepareResources}
	results[1].SkipNodeOperations = skips{resourceapi.SkipNodeOperationAll}
	skipped := func() (list []Skip) {
		for _, measured := range node.Measurements() {
			if s, ok := measured.(Skip); ok {
				list = append(list, s)
			}
		}
		node.Reset()
		return list
	}

	require.NoError(t, prepare(m, a, false))
	assert.Equal(t, []string{"prepare gpu"}, d.took())
	assert.Equal(t, []string{"gpu.example.com=gpu"}, cdi(t, m, a))
	assert.Equal(t, []Skip{{"absent.example.com", "NodePrepareResources"}}, skipped())
	saved := onDisk(t, m.dir)["gpu"]
	assert.Equal(t, map[string]skips{"gpu.example.com": {"NodeUnprepareResources"}, "absent.example.com": {"*"}},
		saved.Skips)
	assert.Len(t, saved.Drivers, 2)

	m = newManager(t, m.dir, api, Options{})
	require.NoError(t, m.Join(node))
	require.NoError(t, end(m, a))
	assert.ElementsMatch(t, []Skip{{"gpu.example.com", "NodeUnprepareResources"},
		{"absent.example.com", "NodeUnprepareResources"}}, skipped())
	assert.Empty(t, onDisk(t, m.dir))
	assert.Empty(t, d.took())
}

// A claim of which all drivers are skipped is in use all the same.
func TestAllOperationsSkipped(t *testing.T) {
	node := nodefake.NewNode()
	m, api, d := withDriver(t, Options{SkipOperations: true})
	require.NoError(t, m.Join(node))
	a := podWith("a", "gpu")
	claim := api.set("gpu", []string{"gpu.example.com"}, a)
	claim.Status.Allocation.Devices.Results[0].SkipNodeOperations = skips{resourceapi.SkipNodeOperationAll}
	require.NoError(t, prepare(m, a, false))
	assert.Empty(t, d.took())
	assert.Empty(t, cdi(t, m, a))
	assert.Contains(t, node.Measurements(), InUse{ByDriver: map[string]int{"gpu.example.com": 1}, All: 1})
	require.NoError(t, end(m, a))
	assert.Empty(t, d.took())
	assert.Empty(t, onDisk(t, m.dir))
}

// Without the option, which is the feature gate of kubelet, such a claim is refused.
func TestSkippedOperationsWithoutTheOption(t *testing.T) {
	m, api, d := withDriver(t, Options{})
	a := podWith("a", "gpu")
	claim := api.set("gpu", []string{"gpu.example.com"}, a)
	claim.Status.Allocation.Devices.Results[0].SkipNodeOperations = skips{resourceapi.SkipNodeOperationAll}
	assert.EqualError(t, prepare(m, a, false), "prepare dynamic resources: ResourceClaim gpu: the devices of driver "+
		`gpu.example.com skip operations (skipNodeOperations ["*"]), which needs the feature gate `+
		"DRAOptionalNodeOperations=true")
	assert.Empty(t, d.took())
	require.NoError(t, end(m, a))
}
