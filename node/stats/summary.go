package stats

import (
	"context"
	"encoding/json"
	"sync"

	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// encodings are the encoded summaries of a reading.
type encodings struct{ full, cpuAndMemory encoding }

// encoding is made for the first caller of get.
type encoding struct {
	once sync.Once
	data []byte
	err  error
}

func (e *encoding) get(s func() *statsv1alpha1.Summary) ([]byte, error) {
	e.once.Do(func() { e.data, e.err = json.Marshal(s()) })
	return e.data, e.err
}

// Summary returns the summary of [Collector.Read] as JSON (Summary in
// k8s.io/kubelet/pkg/apis/stats/v1alpha1), or only its CPU, memory and swap. It is encoded once
// for all readers of a reading, and must not be changed. As with kubelet, it is an error if the
// usage of pods cannot be read.
func (c *Collector) Summary(ctx context.Context, onlyCPUAndMemory bool) ([]byte, error) {
	if !onlyCPUAndMemory {
		c.disk.wanted.Notify()
	}
	r, err := c.Read(ctx)
	if err != nil {
		return nil, err
	}
	if r.Err != nil {
		return nil, r.Err
	}
	if onlyCPUAndMemory {
		return r.json.cpuAndMemory.get(r.cpuAndMemory)
	}
	return r.json.full.get(func() *statsv1alpha1.Summary { return &r.Summary })
}

// cpuAndMemory returns the summary without all but CPU, memory and swap.
func (r *Reading) cpuAndMemory() *statsv1alpha1.Summary {
	n := &r.Summary.Node
	out := &statsv1alpha1.Summary{
		Node: statsv1alpha1.NodeStats{NodeName: n.NodeName, StartTime: n.StartTime, CPU: n.CPU, Memory: n.Memory,
			Swap: n.Swap},
		Pods: make([]statsv1alpha1.PodStats, len(r.Summary.Pods)),
	}
	for i := range n.SystemContainers {
		c := &n.SystemContainers[i]
		out.Node.SystemContainers = append(out.Node.SystemContainers, statsv1alpha1.ContainerStats{Name: c.Name,
			StartTime: c.StartTime, CPU: c.CPU, Memory: c.Memory, Swap: c.Swap})
	}
	for i := range r.Summary.Pods {
		p := &r.Summary.Pods[i]
		out.Pods[i] = statsv1alpha1.PodStats{
			PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU, Memory: p.Memory, Swap: p.Swap,
			Containers: make([]statsv1alpha1.ContainerStats, len(p.Containers)),
		}
		for j := range p.Containers {
			c := &p.Containers[j]
			out.Pods[i].Containers[j] = statsv1alpha1.ContainerStats{Name: c.Name, StartTime: c.StartTime, CPU: c.CPU,
				Memory: c.Memory, Swap: c.Swap}
		}
	}
	return out
}
