package prommetrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

// PodResources are the metrics of the pod resources API, with kubelet's names. Requested is for the options of package
// node/podresources, which links gRPC, so that it is not among the measurements of [ForAgent].
type PodResources struct {
	requests, lists, gets, allocatables        *prometheus.CounterVec
	failedLists, failedGets, failedAllocatable *prometheus.CounterVec
}

// NewPodResources registers the metrics of one agent. The error names the metric that the registry refused; then none
// is registered.
func NewPodResources(reg prometheus.Registerer) (*PodResources, error) {
	endpoint := func(name, help string) *prometheus.CounterVec {
		return collector.Counters(collector.Kubelet("pod_resources_endpoint_"+name,
			help+" Broken down by server api version."), "server_api_version")
	}
	m := &PodResources{
		requests: endpoint("requests_total", "Cumulative number of requests to the PodResource endpoint."),
		lists:    endpoint("requests_list", "Number of requests to the PodResource List endpoint."),
		gets:     endpoint("requests_get", "Number of requests to the PodResource Get endpoint."),
		allocatables: endpoint("requests_get_allocatable", "Number of requests to the PodResource "+
			"GetAllocatableResources endpoint."),
		failedLists: endpoint("errors_list", "Number of requests to the PodResource List endpoint which "+
			"returned error."),
		failedGets: endpoint("errors_get", "Number of requests to the PodResource Get endpoint which "+
			"returned error."),
		failedAllocatable: endpoint("errors_get_allocatable", "Number of requests to the PodResource "+
			"GetAllocatableResources endpoint which returned error."),
	}
	if err := collector.Register(reg, "pod resources", collector.Group{
		m.requests, m.lists, m.gets, m.allocatables, m.failedLists, m.failedGets, m.failedAllocatable,
	}); err != nil {
		return nil, err
	}
	return m, nil
}

// Requested counts a request that was not refused.
func (m *PodResources) Requested(version, method string, err error) {
	m.requests.WithLabelValues(version).Inc()
	if version != "v1" { // as kubelet
		return
	}
	count, failed := m.lists, m.failedLists
	switch method {
	case "Get":
		count, failed = m.gets, m.failedGets
	case "GetAllocatableResources":
		count, failed = m.allocatables, m.failedAllocatable
	}
	count.WithLabelValues(version).Inc()
	if err != nil {
		failed.WithLabelValues(version).Inc()
	}
}

// PodsAPI are the metrics of the pods API, with kubelet's names. Requested is for the options of package node/podsapi.
type PodsAPI struct {
	requests *prometheus.CounterVec
	methods  map[string]*prometheus.CounterVec
}

// NewPodsAPI registers the metrics of one agent. The error names the metric that the registry refused; then none is
// registered.
func NewPodsAPI(reg prometheus.Registerer) (*PodsAPI, error) {
	counters := func(name, help string) *prometheus.CounterVec {
		return collector.Counters(collector.Kubelet("pod_requests_"+name,
			help+" Broken down by server api version and status code."), "server_api_version", "status_code")
	}
	method := func(name string) *prometheus.CounterVec {
		return counters(strings.ToLower(name)+"_total", "Number of requests to the PodsAPI "+name+" endpoint.")
	}
	m := &PodsAPI{
		requests: counters("total", "Cumulative number of requests to the PodsAPI endpoint."),
		methods: map[string]*prometheus.CounterVec{"ListPods": method("List"), "GetPod": method("Get"),
			"WatchPods": method("Watch")},
	}
	if err := collector.Register(reg, "pods API", collector.Group{
		m.requests, m.methods["ListPods"], m.methods["GetPod"], m.methods["WatchPods"],
	}); err != nil {
		return nil, err
	}
	return m, nil
}

// Requested counts a request that was not refused.
func (m *PodsAPI) Requested(version, method, code string) {
	m.requests.WithLabelValues(version, code).Inc()
	if count := m.methods[method]; count != nil {
		count.WithLabelValues(version, code).Inc()
	}
}
