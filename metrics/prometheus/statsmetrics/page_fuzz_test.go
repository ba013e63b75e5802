package statsmetrics_test

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/statsmetrics"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Whatever the names and labels of a runtime are, the pages can be parsed, and have no other
// metrics than without them.
func FuzzPages(f *testing.F) {
	f.Add("main", "eth0", "v")
	f.Add(evil, evil, evil)
	f.Add("x\r", "\u2028", "\\n\\\"")
	parse := func(t *testing.T, h http.Handler) map[string]bool {
		code, body := get(t, h)
		require.Equal(t, http.StatusOK, code)
		parser := expfmt.NewTextParser(model.LegacyValidation)
		parsed, err := parser.TextToMetricFamilies(strings.NewReader(body))
		require.NoError(t, err, "%q", body)
		names := map[string]bool{}
		for name := range parsed {
			names[name] = true
		}
		return names
	}
	page := func(container, port, value string) *fixed {
		r := reading()
		p := &r.Summary.Pods[0]
		p.Containers[0].Name = container
		p.Network = &statsv1alpha1.NetworkStats{Interfaces: []statsv1alpha1.InterfaceStats{{Name: port,
			RxBytes: number(1)}}}
		r.Pods[0].Containers[0].Image = value
		return &fixed{reading: r, families: []runtime.MetricFamily{{Name: "container_memory_cache", Help: value,
			Labels: []string{"x"}, Samples: []runtime.MetricSample{
				{SandboxID: "s-u1", ContainerID: "c-u1main", LabelValues: []string{value}, Value: 1},
			}}}}
	}
	f.Fuzz(func(t *testing.T, container, port, value string) {
		if !utf8.ValidString(port) || !utf8.ValidString(value) { // package stats drops these
			return
		}
		plain, f := page("main", "eth0", "v"), page(container, port, value)
		require.Equal(t, parse(t, statsmetrics.Resource(plain)), parse(t, statsmetrics.Resource(f)))
		require.Equal(t, parse(t, statsmetrics.Cadvisor(plain, statsmetrics.CadvisorOptions{})),
			parse(t, statsmetrics.Cadvisor(f, statsmetrics.CadvisorOptions{})))
	})
}
