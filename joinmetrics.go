package kubeletkit

import (
	"time"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/images/records"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/status"
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
		Images:     both(a.Images, b.Images, func(p pair[images.Metrics]) images.Metrics { return imagesMetrics{p} }),
		GC:         both(a.GC, b.GC, func(p pair[gc.Metrics]) gc.Metrics { return gcMetrics{p} }),
	}
}

// pair are two receivers.
type pair[T any] [2]T

func (p pair[T]) each(f func(T)) {
	f(p[0])
	f(p[1])
}

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
	m.each(func(r podconfig.Metrics) { r.Sources(registered, seen) })
}

func (m podConfigMetrics) SourceFailed(source string) {
	m.each(func(r podconfig.Metrics) { r.SourceFailed(source) })
}

func (m podConfigMetrics) ChangeDelivered(source string, op podconfig.Op, pods int) {
	m.each(func(r podconfig.Metrics) { r.ChangeDelivered(source, op, pods) })
}

func (m podConfigMetrics) PodRejected(source string) {
	m.each(func(r podconfig.Metrics) { r.PodRejected(source) })
}

type plegMetrics struct{ pair[pleg.Metrics] }

func (m plegMetrics) Relisted(relist pleg.Relisted) {
	m.each(func(r pleg.Metrics) { r.Relisted(relist) })
}

func (m plegMetrics) Counted(counts pleg.Counts) {
	m.each(func(r pleg.Metrics) { r.Counted(counts) })
}

func (m plegMetrics) Connected(err error) {
	m.each(func(r pleg.Metrics) { r.Connected(err) })
}

func (m plegMetrics) Hinted(age time.Duration) {
	m.each(func(r pleg.Metrics) { r.Hinted(age) })
}

func (m plegMetrics) Missed(pods int) {
	m.each(func(r pleg.Metrics) { r.Missed(pods) })
}

type podWorkersMetrics struct{ pair[podworkers.Metrics] }

func (m podWorkersMetrics) Called(call podworkers.Call) {
	m.each(func(r podworkers.Metrics) { r.Called(call) })
}

func (m podWorkersMetrics) Counted(pods map[podworkers.PodKind]int) {
	m.each(func(r podworkers.Metrics) { r.Counted(pods) })
}

type statusMetrics struct{ pair[status.Metrics] }

func (m statusMetrics) StatusDelivered(latency time.Duration) {
	m.each(func(r status.Metrics) { r.StatusDelivered(latency) })
}

func (m statusMetrics) DeliveryFailed() {
	m.each(func(r status.Metrics) { r.DeliveryFailed() })
}

func (m statusMetrics) DeliveriesHanging(n int) {
	m.each(func(r status.Metrics) { r.DeliveriesHanging(n) })
}

func (m statusMetrics) PodStarted(took time.Duration) {
	m.each(func(r status.Metrics) { r.PodStarted(took) })
}

type proberMetrics struct{ pair[prober.Metrics] }

func (m proberMetrics) Attempted(probe prober.ProbeRef, outcome prober.Outcome, took time.Duration) {
	m.each(func(r prober.Metrics) { r.Attempted(probe, outcome, took) })
}

func (m proberMetrics) Removed(probe prober.ProbeRef) {
	m.each(func(r prober.Metrics) { r.Removed(probe) })
}

type volumeMetrics struct{ pair[volume.Metrics] }

func (m volumeMetrics) SetUp(plugin string, took time.Duration, err error) {
	m.each(func(r volume.Metrics) { r.SetUp(plugin, took, err) })
}

func (m volumeMetrics) TearDown(plugin string, took time.Duration, err error) {
	m.each(func(r volume.Metrics) { r.TearDown(plugin, took, err) })
}

type gcMetrics struct{ pair[gc.Metrics] }

func (m gcMetrics) Collected(c gc.Collection) {
	m.each(func(r gc.Metrics) { r.Collected(c) })
}

func (m gcMetrics) ImagesCollected(c gc.ImageCollection) {
	m.each(func(r gc.Metrics) { r.ImagesCollected(c) })
}

type imagesMetrics struct{ pair[images.Metrics] }

func (m imagesMetrics) Pulled(p images.Pull) { m.each(func(r images.Metrics) { r.Pulled(p) }) }

func (m imagesMetrics) Ensured(e images.Ensured) { m.each(func(r images.Metrics) { r.Ensured(e) }) }

func (m imagesMetrics) Verified(d records.Decision) {
	m.each(func(r images.Metrics) { r.Verified(d) })
}

func (m imagesMetrics) Recorded(intents, records int) {
	m.each(func(r images.Metrics) { r.Recorded(intents, records) })
}
