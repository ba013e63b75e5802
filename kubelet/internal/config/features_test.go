package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The features of the metric kubernetes_feature_enabled are as the gates are, and each gate with a stage exists.
func TestFeatures(t *testing.T) {
	s := &Settings{}
	s.FeatureGates = map[string]bool{eventedPLEG: false, cpuPeriodGate: false}
	found := map[string]Feature{}
	for _, f := range s.Features() {
		found[f.Name] = f
	}
	assert.Equal(t, Feature{eventedPLEG, "ALPHA", false}, found[eventedPLEG])
	assert.Equal(t, Feature{cpuPeriodGate, "", false}, found[cpuPeriodGate])
	assert.Equal(t, Feature{"KubeletTracing", "", true}, found["KubeletTracing"], "locked")
	assert.Equal(t, Feature{"ContainerStopSignals", "ALPHA", true}, found["ContainerStopSignals"], "always on here")
	assert.False(t, found["CSIVolumeHealth"].Enabled, "not implemented")
	s.FeatureGates = nil
	for _, f := range s.Features() {
		if f.Name == eventedPLEG {
			assert.True(t, f.Enabled, "on by default here")
		}
	}
	for line := range strings.Lines(stages) {
		for _, word := range strings.Fields(line) {
			if !strings.HasPrefix(line, "#") && !strings.HasSuffix(word, ":") {
				require.Contains(t, found, word)
			}
		}
	}
}
