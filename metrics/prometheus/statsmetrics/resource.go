package statsmetrics

import (
	"time"

	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/node/stats"
)

// resource encodes /metrics/resource. Names, labels, help and order are kubelet's
// (pkg/kubelet/metrics/collectors/resource_metrics.go at 1.37). Of two pods of one namespace and
// name, the newer one counts: their series would be the same.
func resource(r *stats.Reading) []byte {
	t := &text{buf: make([]byte, 0, 256*(16+4*len(r.Pods)))}
	containers := func(f func(p *statsv1alpha1.PodStats, c *statsv1alpha1.ContainerStats, labels []label)) {
		pods(r, func(p *statsv1alpha1.PodStats) {
			for i := range p.Containers {
				c := &p.Containers[i]
				f(p, c, []label{{"container", c.Name}, {"namespace", p.PodRef.Namespace}, {"pod", p.PodRef.Name}})
			}
		})
	}
	t.family("container_cpu_usage_seconds_total", counter, "[STABLE] Cumulative cpu time consumed by the container "+
		"in core-seconds")
	containers(func(_ *statsv1alpha1.PodStats, c *statsv1alpha1.ContainerStats,
		labels []label) {
		t.cpu(c.CPU, labels)
	})
	t.family("container_memory_working_set_bytes", gauge, "[STABLE] Current working set of the container in bytes")
	containers(func(_ *statsv1alpha1.PodStats, c *statsv1alpha1.ContainerStats, labels []label) {
		t.workingSet(c.Memory, labels)
	})
	t.family("container_start_time_seconds", gauge, "[STABLE] Start time of the container since unix epoch in seconds")
	containers(func(_ *statsv1alpha1.PodStats, c *statsv1alpha1.ContainerStats, labels []label) {
		if c.StartTime.Unix() > 0 {
			t.sample(float64(c.StartTime.UnixNano())/float64(time.Second), time.Time{}, labels)
		}
	})
	t.family("container_swap_limit_bytes", gauge, "[ALPHA] Current amount of the container swap limit in bytes. "+
		"Reported only on non-windows systems")
	containers(func(_ *statsv1alpha1.PodStats, c *statsv1alpha1.ContainerStats, labels []label) {
		if c.Swap != nil && c.Swap.SwapAvailableBytes != nil {
			limit := float64(*c.Swap.SwapAvailableBytes)
			if c.Swap.SwapUsageBytes != nil {
				limit += float64(*c.Swap.SwapUsageBytes)
			}
			t.sample(limit, c.Swap.Time.Time, labels)
		}
	})
	t.family("container_swap_usage_bytes", gauge, "[ALPHA] Current amount of the container swap usage in bytes. "+
		"Reported only on non-windows systems")
	containers(func(_ *statsv1alpha1.PodStats, c *statsv1alpha1.ContainerStats, labels []label) {
		t.swap(c.Swap, labels)
	})

	n := &r.Summary.Node
	t.family("node_cpu_usage_seconds_total", counter, "[STABLE] Cumulative cpu time consumed by the node in "+
		"core-seconds")
	t.cpu(n.CPU, nil)
	t.family("node_memory_working_set_bytes", gauge, "[STABLE] Current working set of the node in bytes")
	t.workingSet(n.Memory, nil)
	t.family("node_swap_usage_bytes", gauge, "[ALPHA] Current swap usage of the node in bytes. Reported only on "+
		"non-windows systems")
	t.swap(n.Swap, nil)

	ofPod := func(p *statsv1alpha1.PodStats) []label {
		return []label{{"namespace", p.PodRef.Namespace}, {"pod", p.PodRef.Name}}
	}
	t.family("pod_cpu_usage_seconds_total", counter, "[STABLE] Cumulative cpu time consumed by the pod in core-seconds")
	pods(r, func(p *statsv1alpha1.PodStats) { t.cpu(p.CPU, ofPod(p)) })
	t.family("pod_memory_working_set_bytes", gauge, "[STABLE] Current working set of the pod in bytes")
	pods(r, func(p *statsv1alpha1.PodStats) { t.workingSet(p.Memory, ofPod(p)) })
	t.family("pod_swap_usage_bytes", gauge, "[ALPHA] Current amount of the pod swap usage in bytes. Reported only "+
		"on non-windows systems")
	pods(r, func(p *statsv1alpha1.PodStats) { t.swap(p.Swap, ofPod(p)) })

	t.family("resource_scrape_error", gauge,
		"[STABLE] 1 if there was an error while getting container metrics, 0 otherwise")
	t.sample(failed(r), time.Time{})
	return t.buf
}

// pods calls f for each pod that is the newest of its name.
func pods(r *stats.Reading, f func(p *statsv1alpha1.PodStats)) {
	for i := range r.Summary.Pods {
		if !r.Pods[i].Shadowed {
			f(&r.Summary.Pods[i])
		}
	}
}

// failed returns 1 if the usage of pods is missing.
func failed(r *stats.Reading) float64 {
	if r.Err != nil {
		return 1
	}
	return 0
}

func (t *text) cpu(c *statsv1alpha1.CPUStats, labels []label) {
	if c != nil {
		t.number(c.UsageCoreNanoSeconds, float64(time.Second), c.Time.Time, labels)
	}
}

func (t *text) workingSet(m *statsv1alpha1.MemoryStats, labels []label) {
	if m != nil {
		t.number(m.WorkingSetBytes, 1, m.Time.Time, labels)
	}
}

func (t *text) swap(s *statsv1alpha1.SwapStats, labels []label) {
	if s != nil {
		t.number(s.SwapUsageBytes, 1, s.Time.Time, labels)
	}
}
