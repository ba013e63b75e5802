// Package prommetrics makes Prometheus metrics of the measurements of an agent. A metric that kubelet has too has
// kubelet's name, type, labels, buckets and help, so that dashboards and alerts made for kubelet work; the others begin
// with kubeletkit_.
//
//	reg := prometheus.NewRegistry()
//	measure, err := prommetrics.ForAgent(reg, reg)
//	agent, err := kubeletkit.New(kubeletkit.Options{Observe: kubeletkit.Observe{Measure: measure}, …})
//
// Each part has a constructor of its own, for use without an agent. The metrics of runtime/cri are in package
// crimetrics, because runtime/cri needs gRPC.
//
// There is no global registry. Two agents in one process have a registry each, or share one
// through [prometheus.WrapRegistererWith], which adds a label.
package prommetrics
