package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEviction(t *testing.T) {
	thresholds := func(s *Settings) (out []string) {
		list, err := s.Thresholds()
		require.NoError(t, err)
		for _, th := range list {
			out = append(out, th.String())
		}
		return out
	}
	for _, tc := range []struct {
		name, config string
		args         []string
		check        func(t *testing.T, s *Settings)
	}{
		{"defaults", "", []string{"--kubeconfig=/k"}, func(t *testing.T, s *Settings) {
			assert.Equal(t, []string{"memory.available<100Mi", "imagefs.available<15%", "imagefs.inodesFree<5%",
				"nodefs.available<10%", "nodefs.inodesFree<5%"}, thresholds(s))
			assert.Equal(t, 5*time.Minute, s.EvictionPressureTransitionPeriod.Duration)
			assert.False(t, s.EvictStatic())
		}},
		{"without an API server", "", nil, func(t *testing.T, s *Settings) { assert.False(t, s.EvictStatic(), "no threshold is given") }},
		{"merged", header + "evictionHard: {memory.available: 5%}\nmergeDefaultEvictionSettings: true\nenforceNodeAllocatable: [pods]\ncontainerRuntimeEndpoint: unix:///run/x\n", nil, func(t *testing.T, s *Settings) {
			assert.Equal(t, []string{"allocatableMemory.available<5%", "memory.available<5%", "imagefs.available<15%",
				"imagefs.inodesFree<5%", "nodefs.available<10%", "nodefs.inodesFree<5%"}, thresholds(s))
			assert.True(t, s.EvictStatic())
		}},
		{"fields", header + "evictionHard: {pid.available: 5%, containerfs.available: 1Gi}\nevictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}\nevictionMinimumReclaim: {memory.available: 1Gi}\nevictionMaxPodGracePeriod: 7\nevictionPressureTransitionPeriod: 1s\n", nil, func(t *testing.T, s *Settings) {
			list, err := s.Thresholds()
			require.NoError(t, err)
			require.Len(t, list, 2)
			assert.Equal(t, time.Minute, list[0].GracePeriod)
			assert.Equal(t, int64(1<<30), list[0].MinReclaim.Of(1<<40))
			assert.EqualValues(t, 7, s.EvictionMaxPodGracePeriod)
			require.Len(t, s.Warnings, 1)
			assert.Contains(t, s.Warnings[0], "containerfs.available: no effect, as in kubelet")
		}},
		{"flags", "", []string{"--eviction-hard=memory.available<1Mi", "--eviction-soft=memory.available<2Mi", "--eviction-soft-grace-period=memory.available=3s", "--eviction-minimum-reclaim=memory.available=4Mi", "--eviction-max-pod-grace-period=5", "--eviction-pressure-transition-period=6s"}, func(t *testing.T, s *Settings) {
			assert.Equal(t, []string{"memory.available<1Mi", "memory.available<2Mi"}, thresholds(s))
			assert.Empty(t, s.Warnings)
			assert.True(t, s.EvictStatic())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := parsed(t, tc.config, tc.args...)
			require.NoError(t, err)
			tc.check(t, s)
		})
	}
	_, err := parsed(t, "", "--eviction-soft=memory.available<2Mi")
	assert.ErrorContains(t, err, "evictionSoftGracePeriod must have it")
}
