package prommetrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit"
)

// ForAgent registers the metrics of all parts of one agent, for
// [kubeletkit.Options].Observe.Metrics. Those of the runtime are apart, since the runtime is made
// before the agent: see package crimetrics. The error names the metric that the registry refused.
//
// The metrics of probes have series for each container. The field Prober can be replaced
// by a [NewProber] of another registry, to serve them apart.
func ForAgent(reg prometheus.Registerer) (kubeletkit.Metrics, error) {
	var (
		m    kubeletkit.Metrics
		errs []error
	)
	add(&errs, reg, NewPodConfig, func(p *PodConfig) { m.PodConfig = p })
	add(&errs, reg, NewPLEG, func(p *PLEG) { m.PLEG = p })
	add(&errs, reg, NewPodWorkers, func(p *PodWorkers) { m.PodWorkers = p })
	add(&errs, reg, NewStatus, func(p *Status) { m.Status = p })
	add(&errs, reg, NewProber, func(p *Prober) { m.Prober = p })
	add(&errs, reg, NewVolumes, func(p *Volumes) { m.Volumes = p })
	add(&errs, reg, NewImages, func(p *Images) { m.Images = p })
	add(&errs, reg, NewGC, func(p *GC) { m.GC = p })
	return m, errors.Join(errs...)
}

func add[T any](errs *[]error, reg prometheus.Registerer, make func(prometheus.Registerer) (T, error), use func(T)) {
	part, err := make(reg)
	if err != nil {
		*errs = append(*errs, err)
		return
	}
	use(part)
}
