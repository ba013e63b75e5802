package repository_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A feature gate that acts has a test that switches it. One whose feature is missing, or is on although it is off in a
// kubelet, has its reason in docs/operate/features.md.
func TestFeatureGates(t *testing.T) {
	tests := ""
	eachGoFile(t, func(path string, source []byte) {
		if strings.HasSuffix(path, "_test.go") && strings.HasPrefix(path, "kubelet/") {
			tests += string(source)
		}
	})
	table, err := os.ReadFile("kubelet/internal/config/feature_gates.txt")
	require.NoError(t, err)
	features, err := os.ReadFile("docs/operate/features.md")
	require.NoError(t, err)
	for line := range strings.Lines(string(table)) {
		gate := strings.Fields(line)
		switch {
		case gate[0] == "#":
		case gate[2] == "obeyed", gate[2] == "part":
			assert.True(t, strings.Contains(tests, gate[0]), "no test of package kubelet has the gate %s", gate[0])
		case gate[2] == "missing", gate[2] == "always" && gate[1] == "false":
			assert.True(t, strings.Contains(string(features), gate[0]), "docs/operate/features.md has no reason for %s",
				gate[0])
		}
	}
}
