package kubelet

import (
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kubeletkit/kubeletkit"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/metrics/prometheus/crimetrics"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// metrics are those of one agent, in registries of their own.
type metrics struct {
	parts  kubeletkit.Metrics
	cri    cri.Metrics
	health *prommetrics.SLIs
	// registry has what is in /metrics; handler answers it, probes answers /metrics/probes, and
	// slis answers /metrics/slis.
	registry              prometheus.Registerer
	evictions             *prommetrics.Eviction
	logs                  *prommetrics.Logs
	resources             *prommetrics.Resources
	claims                *prommetrics.ResourceClaims
	rest                  *prommetrics.RESTClient
	requests              *prommetrics.Requests
	shutdown              *prommetrics.Shutdown
	handler, probes, slis http.Handler
}

// newMetrics makes the metrics of kubelet that exist here: those of the process, of Go,
// of the parts, and of the calls of the container runtime.
func newMetrics(log logr.Logger) (*metrics, error) {
	reg, probes, slis := prometheus.NewRegistry(), prometheus.NewRegistry(), prometheus.NewRegistry()
	if err := prommetrics.RegisterProcess(reg); err != nil {
		return nil, err
	}
	if err := reg.Register(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll))); err != nil {
		return nil, err
	}
	parts, err := prommetrics.ForAgent(reg)
	if err != nil {
		return nil, err
	}
	// Probes have series for each container. As with kubelet they are apart, so that the
	// number of series of /metrics does not depend on the pods.
	if parts.Prober, err = prommetrics.NewProber(probes); err != nil {
		return nil, err
	}
	calls, err := crimetrics.New(reg)
	if err != nil {
		return nil, err
	}
	rest, err := prommetrics.NewRESTClient(reg)
	if err != nil {
		return nil, err
	}
	health, err := prommetrics.NewSLIs(slis)
	if err != nil {
		return nil, err
	}
	if err := prommetrics.RegisterStartTime(slis); err != nil {
		return nil, err
	}
	requests, err := prommetrics.NewRequests(reg)
	if err != nil {
		return nil, err
	}
	shutdown, err := prommetrics.NewShutdown(reg)
	if err != nil {
		return nil, err
	}
	evictions, err := prommetrics.NewEviction(reg)
	if err != nil {
		return nil, err
	}
	rotations, err := prommetrics.NewLogs(reg)
	if err != nil {
		return nil, err
	}
	resources, err := prommetrics.NewResources(reg)
	if err != nil {
		return nil, err
	}
	claims, err := prommetrics.NewResourceClaims(reg)
	if err != nil {
		return nil, err
	}
	return &metrics{
		claims:    claims,
		resources: resources, shutdown: shutdown, evictions: evictions, logs: rotations,
		rest: rest, requests: requests, health: health,
		parts: parts, cri: calls, registry: reg,
		handler: prommetrics.Handler(reg, log), probes: prommetrics.Handler(probes, log),
		slis: prommetrics.Handler(slis, log),
	}, nil
}
