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
		PodConfig: joinField(a.PodConfig, b.PodConfig,
			func(p joined[podconfig.Metrics]) podconfig.Metrics { return podConfigMetrics{p} }),
		PLEG: joinField(a.PLEG, b.PLEG, func(p joined[pleg.Metrics]) pleg.Metrics { return plegMetrics{p} }),
		PodWorkers: joinField(a.PodWorkers, b.PodWorkers,
			func(p joined[podworkers.Metrics]) podworkers.Metrics { return podWorkersMetrics{p} }),
		Status: joinField(a.Status, b.Status,
			func(p joined[status.Metrics]) status.Metrics { return statusMetrics{p} }),
		Prober: joinField(a.Prober, b.Prober,
			func(p joined[prober.Metrics]) prober.Metrics { return proberMetrics{p} }),
		Volumes: joinField(a.Volumes, b.Volumes,
			func(p joined[volume.Metrics]) volume.Metrics { return volumeMetrics{p} }),
		Images: joinField(a.Images, b.Images,
			func(p joined[images.Metrics]) images.Metrics { return imagesMetrics{p} }),
		GC: joinField(a.GC, b.GC, func(p joined[gc.Metrics]) gc.Metrics { return gcMetrics{p} }),
	}
}

// joined are two receivers.
type joined[T any] [2]T

func (p joined[T]) each(f func(T)) {
	f(p[0])
	f(p[1])
}

// joinField returns the receiver that is not nil, or joins them.
func joinField[T comparable](a, b T, join func(joined[T]) T) T {
	var none T
	switch {
	case a == none:
		return b
	case b == none:
		return a
	default:
		return join(joined[T]{a, b})
	}
}

type podConfigMetrics struct{ joined[podconfig.Metrics] }

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

type plegMetrics struct{ joined[pleg.Metrics] }

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

type podWorkersMetrics struct{ joined[podworkers.Metrics] }

func (m podWorkersMetrics) Called(call podworkers.Call) {
	m.each(func(r podworkers.Metrics) { r.Called(call) })
}

func (m podWorkersMetrics) Counted(pods map[podworkers.PodKind]int) {
	m.each(func(r podworkers.Metrics) { r.Counted(pods) })
}

type statusMetrics struct{ joined[status.Metrics] }

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

type proberMetrics struct{ joined[prober.Metrics] }

func (m proberMetrics) Attempted(probe prober.ProbeRef, outcome prober.Outcome, took time.Duration) {
	m.each(func(r prober.Metrics) { r.Attempted(probe, outcome, took) })
}

func (m proberMetrics) Removed(probe prober.ProbeRef) {
	m.each(func(r prober.Metrics) { r.Removed(probe) })
}

type volumeMetrics struct{ joined[volume.Metrics] }

func (m volumeMetrics) SetUp(plugin string, took time.Duration, err error) {
	m.each(func(r volume.Metrics) { r.SetUp(plugin, took, err) })
}

func (m volumeMetrics) TearDown(plugin string, took time.Duration, err error) {
	m.each(func(r volume.Metrics) { r.TearDown(plugin, took, err) })
}

type gcMetrics struct{ joined[gc.Metrics] }

func (m gcMetrics) Collected(c gc.Collection) {
	m.each(func(r gc.Metrics) { r.Collected(c) })
}

func (m gcMetrics) ImagesCollected(c gc.ImageCollection) {
	m.each(func(r gc.Metrics) { r.ImagesCollected(c) })
}

type imagesMetrics struct{ joined[images.Metrics] }

func (m imagesMetrics) Pulled(p images.Pull) { m.each(func(r images.Metrics) { r.Pulled(p) }) }

func (m imagesMetrics) Ensured(e images.Ensured) { m.each(func(r images.Metrics) { r.Ensured(e) }) }

func (m imagesMetrics) Verified(d records.Decision) {
	m.each(func(r images.Metrics) { r.Verified(d) })
}

func (m imagesMetrics) Recorded(intents, records int) {
	m.each(func(r images.Metrics) { r.Recorded(intents, records) })
}
