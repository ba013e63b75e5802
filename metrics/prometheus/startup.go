package prommetrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

// NodeStartup has kubelet's metrics of the start of a node that the agent has registered. They are 0 for a node object
// that existed. It is a node.Startup of package cluster/node.
type NodeStartup struct {
	preKubelet, preRegistration, registration, postRegistration, total prometheus.Gauge

	mu sync.Mutex
	// boot is zero if it is not known. The others are zero until that has happened.
	boot, agent, registering, registered time.Time
	ready                                bool
}

// NewNodeStartup registers the metrics of the start of one node. boot is when the machine has started, zero if that is
// not known; the agent starts now. The error names the metric that the registry refused; then none is registered.
func NewNodeStartup(reg prometheus.Registerer, boot time.Time) (*NodeStartup, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return collector.Gauge(collector.Kubelet("node_startup_"+name, "Duration in seconds of node startup "+help))
	}
	m := &NodeStartup{
		preKubelet:       gauge("pre_kubelet_duration_seconds", "before kubelet starts."),
		preRegistration:  gauge("pre_registration_duration_seconds", "before registration."),
		registration:     gauge("registration_duration_seconds", "during registration."),
		postRegistration: gauge("post_registration_duration_seconds", "after registration."),
		total:            gauge("duration_seconds", "in total."),
		boot:             boot, agent: time.Now(),
	}
	return m, collector.Register(reg, "start of the node", collector.Group{m.preKubelet, m.preRegistration,
		m.registration, m.postRegistration, m.total})
}

// Registering implements node.Startup.
func (m *NodeStartup) Registering() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.registering.IsZero() {
		m.registering = time.Now()
	}
}

// Registered implements node.Startup.
func (m *NodeStartup) Registered() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.registering.IsZero() || !m.registered.IsZero() {
		return
	}
	m.registered = time.Now()
	if !m.boot.IsZero() {
		m.preKubelet.Set(m.agent.Sub(m.boot).Seconds())
	}
	m.preRegistration.Set(m.registering.Sub(m.agent).Seconds())
	m.registration.Set(m.registered.Sub(m.registering).Seconds())
}

// Ready implements node.Startup.
func (m *NodeStartup) Ready() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.registered.IsZero() || m.ready {
		return
	}
	m.ready = true
	now := time.Now()
	m.postRegistration.Set(now.Sub(m.registered).Seconds())
	if !m.boot.IsZero() {
		m.total.Set(now.Sub(m.boot).Seconds())
	}
}
