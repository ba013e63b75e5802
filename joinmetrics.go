package kubeletkit

import (
	"time"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/volume"
)

// JoinMetrics returns metrics by which both a and b receive everything, a first. So a program adds receivers of its own
// to those of metrics/prometheus.
func JoinMetrics(a, b Metrics) Metrics {
	return Metrics{
		PodConfig:  both(a.PodConfig, b.PodConfig, func(p pair[podconfig.Metrics]) podconfig.Metrics { return podConfigMetrics{p} }),
		PLEG:       both(a.PLEG, b.PLEG, func(p pair[pleg.Metrics]) pleg.Metrics { return plegMetrics{p} }),
		PodWorkers: both(a.PodWorkers, b.PodWorkers, func(p pair[podworkers.Metrics]) podworkers.Metrics { return podWorkersMetrics{p} }),
		Status:     both(a.Status, b.Status, func(p pair[status.Metrics]) status.Metrics { return statusMetrics{p} }),
		Prober:     both(a.Prober, b.Prober, func(p pair[prober.Metrics]) prober.Metrics { return proberMetrics{p} }),
		Volumes:    both(a.Volumes, b.Volumes, func(p pair[volume.Metrics]) volume.Metrics { return volumeMetrics{p} }),
		GC:         both(a.GC, b.GC, func(p pair[gc.Metrics]) gc.Metrics { return gcMetrics{p} }),
	}
}

// pair are two receivers.
type pair[T any] [2]T

// both returns the receiver that is not nil, or joins them.
func both[T comparable](a, b T, join func(pair[T]) T) T {
	var none T
	switch {
	case a == none:
		return b
	case b == none:
		return a
	default:
		return join(pair[T]{a, b})
	}
}

type podConfigMetrics struct{ pair[podconfig.Metrics] }

func (m podConfigMetrics) Sources(registered, seen int) {
	for _, r := range m.pair {
		r.Sources(registered, seen)
	}
}

func (m podConfigMetrics) SourceFailed(source string) {
	for _, r := range m.pair {
		r.SourceFailed(source)
	}
}

func (m podConfigMetrics) ChangeDelivered(source string, op podconfig.Op, pods int) {
	for _, r := range m.pair {
		r.ChangeDelivered(source, op, pods)
	}
}

func (m podConfigMetrics) PodRejected(source string) {
	for _, r := range m.pair {
		r.PodRejected(source)
	}
}

type plegMetrics struct{ pair[pleg.Metrics] }

func (m plegMetrics) Relisted(relist pleg.Relisted) {
	for _, r := range m.pair {
		r.Relisted(relist)
	}
}

func (m plegMetrics) Counted(counts pleg.Counts) {
	for _, r := range m.pair {
		r.Counted(counts)
	}
}

func (m plegMetrics) Connected(err error) {
	for _, r := range m.pair {
		r.Connected(err)
	}
}

func (m plegMetrics) Hinted(age time.Duration) {
	for _, r := range m.pair {
		r.Hinted(age)
	}
}

func (m plegMetrics) Missed(pods int) {
	for _, r := range m.pair {
		r.Missed(pods)
	}
}

type podWorkersMetrics struct{ pair[podworkers.Metrics] }

func (m podWorkersMetrics) Called(call podworkers.Call) {
	for _, r := range m.pair {
		r.Called(call)
	}
}

func (m podWorkersMetrics) Counted(pods map[podworkers.PodKind]int) {
	for _, r := range m.pair {
		r.Counted(pods)
	}
}

type statusMetrics struct{ pair[status.Metrics] }

func (m statusMetrics) StatusDelivered(latency time.Duration) {
	for _, r := range m.pair {
		r.StatusDelivered(latency)
	}
}

func (m statusMetrics) DeliveryFailed() {
	for _, r := range m.pair {
		r.DeliveryFailed()
	}
}

func (m statusMetrics) DeliveriesHanging(n int) {
	for _, r := range m.pair {
		r.DeliveriesHanging(n)
	}
}

func (m statusMetrics) PodStarted(took time.Duration) {
	for _, r := range m.pair {
		r.PodStarted(took)
	}
}

type proberMetrics struct{ pair[prober.Metrics] }

func (m proberMetrics) Attempted(probe prober.ProbeRef, outcome prober.Outcome, took time.Duration) {
	for _, r := range m.pair {
		r.Attempted(probe, outcome, took)
	}
}

func (m proberMetrics) Removed(probe prober.ProbeRef) {
	for _, r := range m.pair {
		r.Removed(probe)
	}
}

type volumeMetrics struct{ pair[volume.Metrics] }

func (m volumeMetrics) SetUp(plugin string, took time.Duration, err error) {
	for _, r := range m.pair {
		r.SetUp(plugin, took, err)
	}
}

func (m volumeMetrics) TearDown(plugin string, took time.Duration, err error) {
	for _, r := range m.pair {
		r.TearDown(plugin, took, err)
	}
}

type gcMetrics struct{ pair[gc.Metrics] }

func (m gcMetrics) Collected(c gc.Collection) {
	for _, r := range m.pair {
		r.Collected(c)
	}
}

func (m gcMetrics) ImagesCollected(c gc.ImageCollection) {
	for _, r := range m.pair {
		r.ImagesCollected(c)
	}
}
