package prommetrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubeletkit/kubeletkit"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/server"
)

// The metrics of an agent, and as with kubelet those of its probes under a path of their
// own, since they have series for each container.
func ExampleForAgent() {
	root, err := os.MkdirTemp("", "agent")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(root) }()

	reg, probes := prometheus.NewRegistry(), prometheus.NewRegistry()
	measure, err := prommetrics.ForAgent(reg, probes)
	if err != nil {
		panic(err)
	}
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName: "edge-7",
		RootDir:  root,
		Runtime:  fake.New(fake.Options{}),
		Sources:  []podconfig.Source{podconfig.NewStatic("builtin", fake.Pods(3, 1)...)},
		Observe:  kubeletkit.Observe{Measure: measure},
	})
	if err != nil {
		panic(err)
	}
	handler := server.Handler(agent, server.Options{ // for server.Serve, in a component of Agent.Add
		Metrics:      promhttp.HandlerFor(reg, promhttp.HandlerOpts{}),
		ProbeMetrics: promhttp.HandlerFor(probes, promhttp.HandlerOpts{}),
	})
	if _, err := agent.RunOnce(context.Background()); err != nil {
		panic(err)
	}

	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, "kubeletkit_podconfig_changed_pods_total") {
			fmt.Print(line)
		}
	}
	// Output: kubeletkit_podconfig_changed_pods_total{operation="add",source="builtin"} 3
}
