package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/node/placement/memory"
)

func TestMemoryManager(t *testing.T) {
	const endpoint = "--container-runtime-endpoint=unix:///c.sock"
	file := header + "memoryManagerPolicy: Static\nreservedMemory:\n- {numaNode: 0, limits: {memory: 1Gi}}\n- " +
		"{numaNode: 1, limits: {memory: 2Gi, hugepages-2Mi: 4Mi}}\n"
	s, err := parsed(t, file, endpoint)
	require.NoError(t, err)
	assert.Empty(t, s.Warnings)
	assert.True(t, s.StaticMemory())
	q := resource.MustParse
	assert.Equal(t, []memory.Reservation{
		{Node: 0, Limits: v1.ResourceList{"memory": q("1Gi")}}, {Node: 1, Limits: v1.ResourceList{"memory": q("2Gi"), "hugepages-2Mi": q("4Mi")}},
	}, s.MemoryReservations())
	fields, err := s.Effective(Detected{})
	require.NoError(t, err)
	assert.Equal(t, "Static", fields["memoryManagerPolicy"])

	s, err = parsed(t, file, endpoint, "--reserved-memory=0:memory=3Gi,hugepages-1Gi=1Gi;2:memory=1Mi",
		"--reserved-memory", "1:memory=1Gi")
	require.NoError(t, err)
	list := reservations{list: &s.ReservedMemory}
	assert.Equal(t, "0:hugepages-1Gi=1Gi,memory=3Gi;2:memory=1Mi;1:memory=1Gi", list.String())

	s, err = parsed(t, file, embedded)
	require.NoError(t, err)
	assert.Equal(t, []string{"memoryManagerPolicy Static: an effect only with a container runtime"},
		s.Warnings)
	assert.False(t, s.StaticMemory())

	s, err = parsed(t, "", endpoint, "--reserved-memory=0:memory=1Gi")
	require.NoError(t, err)
	assert.Equal(t, []string{"reservedMemory: an effect only with memoryManagerPolicy Static"}, s.Warnings)
	assert.Empty(t, s.MemoryReservations())

	for _, tc := range []struct{ file, flag, err string }{
		{header + "memoryManagerPolicy: Static\n", endpoint, "needs reservedMemory"},
		{header + "memoryManagerPolicy: BestEffort\n", endpoint, "must be None or Static"},
		{header + "reservedMemory:\n- {numaNode: 0, limits: {cpu: 1}}\n", endpoint, "NUMA node 0, cpu: must be memory or hugepages-SIZE"},
		{header + "reservedMemory:\n- {numaNode: 0, limits: {memory: 0}}\n", endpoint, "must be above 0"},
		{header + "reservedMemory:\n- {numaNode: 0, limits: {memory: 1}}\n- {numaNode: 0, limits: {memory: 1}}\n", endpoint, "is there twice"},
		{"", "--reserved-memory=memory=1Gi", "NODE:memory=QUANTITY"},
		{"", "--reserved-memory=0:", "must be memory"},
		{"", "--reserved-memory=0:memory=x", "memory=x"},
		{"", "--reserved-memory=a:memory=1Gi", "NODE"},
	} {
		_, err := parsed(t, tc.file, tc.flag)
		assert.ErrorContains(t, err, tc.err, tc)
	}
}
