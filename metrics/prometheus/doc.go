// Package prommetrics implements the metrics interfaces of the parts of an agent for
// Prometheus. A metric that kubelet has too has kubelet's name, type, labels, buckets and
// help, so that dashboards and alerts made for kubelet work; the others begin with
// kubeletkit_.
//
//	reg := prometheus.NewRegistry()
//	metrics, err := prommetrics.ForAgent(reg)
//	agent, err := kubeletkit.New(kubeletkit.Options{Metrics: metrics, …})
//
// Each part has a constructor of its own, for use without an agent. The metrics of
// runtime/cri are in package crimetrics, because runtime/cri needs gRPC.
//
// There is no global registry: two agents in one process each have a registry, or one that
// [prometheus.WrapRegistererWith] adds a label to.
package prommetrics
