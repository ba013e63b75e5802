package statsmetrics

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/metrics.md names the metrics of /metrics/cadvisor.
func TestTheDocumentationNamesAllMetrics(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	require.NoError(t, err)
	for _, m := range metrics() {
		assert.Contains(t, string(page), "`"+m.name+"`")
	}
}
