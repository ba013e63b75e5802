package statsmetrics

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every metric of /metrics/cadvisor is one of cAdvisor's, also from a runtime.
func TestNamesAreCadvisors(t *testing.T) {
	for _, m := range metrics() {
		assert.Contains(t, cadvisorNames(), strings.TrimPrefix(m.name, "container_"))
	}
}

// docs/operate/metrics.md names the metrics of /metrics/cadvisor.
func TestTheDocumentationNamesAllMetrics(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operate/metrics.md")
	require.NoError(t, err)
	for _, m := range metrics() {
		assert.Contains(t, string(page), "`"+m.name+"`")
	}
}
