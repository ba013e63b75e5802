// Package prommetrics tells Prometheus what the rooms of an agent do, under the
// names of kubelet, so that dashboards and alerts made for kubelet work.
//
//	reg := prometheus.NewRegistry()
//	m, err := prommetrics.NewPLEG(reg)
//	generator := pleg.NewGeneric(rt, cache, pleg.Options{Metrics: m})
//
// It is the only package of kubeletkit, besides examples, that depends on the Prometheus
// client library. There is no global registry in it: two agents in one process each
// have a registry of their own, or one that [prometheus.WrapRegistererWith] gives
// each a label for.
package prommetrics
