// Package statsmetrics has the pages of kubelet with the usage of the node and its pods, from
// a [stats.Collector]: /metrics/resource, which metrics-server reads, and /metrics/cadvisor. A
// metric has kubelet's or cAdvisor's name, labels, type and help.
//
//	collector, err := stats.New(rt, stats.Options{})
//	handler := server.Handler(agent, server.Options{
//		Stats: collector.Summary, ResourceMetrics: statsmetrics.Resource(collector), CadvisorMetrics: statsmetrics.Cadvisor(collector, statsmetrics.CadvisorOptions{}),
//	})
//
// A page is encoded once for each reading, however many clients read it. It is in Prometheus'
// text format; other formats are not offered.
//
// [NewDisk] registers the metrics of volumes and logs for /metrics.
package statsmetrics
