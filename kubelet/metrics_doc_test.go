package kubelet

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/metrics/prometheus/statsmetrics"
	"github.com/kubeletkit/kubeletkit/node/stats"
)

// registered returns the metrics that are registered, with their labels.
func registered(t *testing.T) map[string]string {
	t.Helper()
	m, err := newMetrics(logr.Discard())
	require.NoError(t, err)
	require.NoError(t, prommetrics.RegisterNode(m.registry, "node", "v1.36.0"))
	_, err = prommetrics.NewClientCertificate(m.registry)
	require.NoError(t, err)
	_, err = prommetrics.NewNodeStartup(m.registry, time.Time{})
	require.NoError(t, err)
	_, err = prommetrics.NewServingCertificate(m.registry)
	require.NoError(t, err)
	_, err = prommetrics.NewCredentialProviders(m.registry, "sha256:1")
	require.NoError(t, err)
	_, err = statsmetrics.NewDisk(m.registry, func() []stats.DiskUsage { return nil })
	require.NoError(t, err)
	require.NoError(t, prommetrics.RegisterPlugins(m.registry, nil, nil))
	_, err = prommetrics.NewProber(m.registry) // those of /metrics/probes are in the same tables
	require.NoError(t, err)
	described := make(chan *prometheus.Desc)
	go func() {
		m.registry.(*prometheus.Registry).Describe(described)
		close(described)
	}()
	desc := regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)
	out := map[string]string{}
	for d := range described {
		found := desc.FindStringSubmatch(d.String())
		require.NotNil(t, found, d)
		out[found[1]] = strings.ReplaceAll(found[2], ",", ", ")
	}
	return out
}

// kubeletMetrics returns the names of all metrics of kubelet's page /metrics.
func kubeletMetrics(t *testing.T) map[string]bool {
	t.Helper()
	golden, err := os.ReadFile("testdata/kubelet-metrics.txt")
	require.NoError(t, err)
	names := map[string]bool{}
	for line := range strings.Lines(string(golden)) {
		if name := strings.TrimSpace(line); !strings.HasPrefix(name, "#") {
			names[name] = true
		}
	}
	return names
}

// The tables of docs/operate/metrics.md are true: what is there, with which labels, and what is missing.
func TestThePageOfMetrics(t *testing.T) {
	data, err := os.ReadFile("../docs/operate/metrics.md")
	require.NoError(t, err)
	page := string(data)
	has, listed := registered(t), map[string]bool{}
	_, section, found := strings.Cut(page, "\n## /metrics\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	name := regexp.MustCompile("`(\\w+)`")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		switch {
		case len(cells) == 3 && strings.HasPrefix(cells[0], "`"): // metrics, type, labels
			for _, m := range name.FindAllStringSubmatch(cells[0], -1) {
				listed[m[1]] = true
				labels, ok := has[m[1]]
				assert.True(t, ok, m[1])
				assert.Equal(t, strings.Trim(cells[2], "–"), labels, m[1])
			}
		case len(cells) == 2 && strings.HasPrefix(cells[1], "`"): // the reason, missing metrics
			assert.NotContains(t, cells[0], "not measured", "that is no reason")
			for _, m := range name.FindAllStringSubmatch(cells[1], -1) {
				listed[m[1]] = true
				assert.NotContains(t, has, m[1])
			}
		}
	}
	for name := range kubeletMetrics(t) {
		assert.True(t, listed[name], "%s of kubelet is not in the tables", name)
	}
	for name := range has {
		switch {
		case strings.HasPrefix(name, "go_"), strings.HasPrefix(name, "process_"):
		case strings.HasPrefix(name, "kubeletkit_"):
			assert.Contains(t, page, "`"+name+"`")
		default:
			assert.True(t, listed[name], "%s is not in the tables", name)
		}
	}
}
