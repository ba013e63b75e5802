package config

import (
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/eviction"
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
		{"defaults", "", []string{"--kubeconfig=/k", embedded}, func(t *testing.T, s *Settings) {
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

// The defaults are those of the main file, and drop-ins patch them.
func TestEvictionDefaultsAndDropIns(t *testing.T) {
	defaults := func(over map[string]string) map[string]string {
		out := eviction.DefaultHard()
		maps.Copy(out, over)
		return out
	}
	memory := map[string]string{"memory.available": "5%"}
	for _, tc := range []struct {
		name, config, dropIn string
		want                 map[string]string
	}{
		{"none", "", "", defaults(nil)},
		{"only in the drop-in", "", "evictionHard: {memory.available: 5%}\n", defaults(memory)},
		{"in both", "evictionHard: {pid.available: 5%}\n", "evictionHard: {memory.available: 5%}\n",
			map[string]string{"pid.available": "5%", "memory.available": "5%"}},
		{"merged by the main file", "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n",
			"evictionHard: {memory.available: 5%}\n", defaults(memory)},
		{"the drop-in cannot merge", "evictionHard: {memory.available: 5%}\n", "mergeDefaultEvictionSettings: true\n",
			memory},
		{"the drop-in is too late to prevent it", "evictionHard: {memory.available: 5%}\nmergeDefaultEvictionSettings: " +
			"true\n", "mergeDefaultEvictionSettings: false\n", defaults(memory)},
		{"an empty map is no threshold", "evictionHard: {}\n", "", map[string]string{}},
		{"nor is null in a drop-in", "", "evictionHard: null\n", map[string]string{}},
		{"null in the main file", "evictionHard: null\n", "", defaults(nil)},
		{"one less", "", "evictionHard: {memory.available: null, nodefs.available: null, nodefs.inodesFree: null, " +
			"imagefs.available: null}\n", map[string]string{"imagefs.inodesFree": "5%"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := parsedFiles(t, tc.config, tc.dropIn)
			require.NoError(t, err)
			assert.Equal(t, tc.want, s.EvictionHard)
		})
	}

	dir := t.TempDir()
	write(t, filepath.Join(dir, "10.conf"), header+"evictionHard: {memory.available: 5%}\n")
	s, err := program.Parse([]string{"--config-dir", dir, "--kubeconfig=/k"})
	require.NoError(t, err)
	assert.Equal(t, memory, s.EvictionHard, "a kubelet without a main file has no defaults")
	s, err = Program{Configuration: map[string]any{"maxPods": 7}}.Parse([]string{"--config-dir", dir, "--root-dir=/r"})
	require.NoError(t, err)
	assert.Equal(t, defaults(memory), s.EvictionHard, "the configuration of the program is a main file")
}
