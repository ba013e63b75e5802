package kubelet

import (
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kubeletkit/kubeletkit/cluster/credentials"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/metrics/prometheus/crimetrics"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// metrics are those of one agent, in registries of their own.
type metrics struct {
	// agent and cri receive the measurements of the agent and of its runtime.
	agent, cri runtime.MeasureFunc
	health     *prommetrics.SLIs
	// registry has what is in /metrics; handler answers it, probes answers /metrics/probes, and
	// slis answers /metrics/slis.
	registry              prometheus.Registerer
	podResources          *prommetrics.PodResources
	setFeature            func(name, stage string, enabled bool)
	pods                  *prommetrics.PodsAPI
	rest                  *prommetrics.RESTClient
	requests              *prommetrics.Requests
	handler, probes, slis http.Handler
	ends                  certificateEnds
}

// certificateEnds are when the certificates of the node expire. It is safe for concurrent use.
type certificateEnds struct {
	mu    sync.Mutex
	known []control.Certificate
}

// of returns m, which also keeps the end of the certificate of that name.
func (e *certificateEnds) of(name string, m credentials.Metrics) credentials.Metrics {
	return certificateEnd{m, e, name}
}

// list returns the certificates, sorted by name.
func (e *certificateEnds) list() []control.Certificate {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.SortedFunc(slices.Values(e.known),
		func(a, b control.Certificate) int { return strings.Compare(a.Name, b.Name) })
}

// certificateEnd keeps the end of one certificate.
type certificateEnd struct {
	credentials.Metrics
	ends *certificateEnds
	name string
}

// CertificateExpires keeps the end of the certificate.
func (c certificateEnd) CertificateExpires(at time.Time) {
	c.Metrics.CertificateExpires(at)
	c.ends.mu.Lock()
	defer c.ends.mu.Unlock()
	c.ends.known = slices.DeleteFunc(c.ends.known, func(k control.Certificate) bool { return k.Name == c.name })
	c.ends.known = append(c.ends.known, control.Certificate{Name: c.name, Expires: at})
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
	// Probes have series for each container. As with kubelet they are apart, so that the
	// number of series of /metrics does not depend on the pods.
	agent, err := prommetrics.ForAgent(reg, probes)
	if err != nil {
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
	for _, reg := range []prometheus.Registerer{slis, probes} {
		if err := prommetrics.RegisterStartTime(reg); err != nil {
			return nil, err
		}
	}
	requests, err := prommetrics.NewRequests(reg)
	if err != nil {
		return nil, err
	}
	setFeature, err := prommetrics.RegisterFeature(reg)
	if err != nil {
		return nil, err
	}
	podResources, err := prommetrics.NewPodResources(reg)
	if err != nil {
		return nil, err
	}
	pods, err := prommetrics.NewPodsAPI(reg)
	if err != nil {
		return nil, err
	}
	return &metrics{
		setFeature: setFeature, pods: pods,
		podResources: podResources, rest: rest, requests: requests, health: health,
		agent: agent, cri: calls.Measure, registry: reg,
		handler: prommetrics.Handler(reg, log), probes: prommetrics.Handler(probes, log),
		slis: prommetrics.Handler(slis, log),
	}, nil
}

// bootTime returns when the machine has started, zero if that is not known.
func bootTime() time.Time {
	data, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return time.Time{}
	}
	up, _, _ := strings.Cut(string(data), " ")
	seconds, err := strconv.ParseFloat(up, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(seconds * float64(time.Second)))
}
