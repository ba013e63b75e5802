package prommetrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ForAgent registers the metrics of the parts and components of one agent, and returns the receiver of their
// measurements, for kubeletkit.Options.Observe.Measure. Those of the runtime are apart, since the runtime is made
// before the agent: see package crimetrics. The error names the metric that the registry refused.
//
// The metrics of probes have series for each container. They are registered with probes, which may be reg.
func ForAgent(reg, probes prometheus.Registerer) (runtime.MeasureFunc, error) {
	var (
		all  []runtime.MeasureFunc
		errs []error
	)
	add(&all, &errs, reg, NewPodConfig)
	add(&all, &errs, reg, NewPLEG)
	add(&all, &errs, reg, NewPodWorkers)
	add(&all, &errs, reg, NewStatus)
	add(&all, &errs, probes, NewProber)
	add(&all, &errs, reg, NewSyncLoop)
	add(&all, &errs, reg, NewPodStarts)
	add(&all, &errs, reg, NewCgroups)
	add(&all, &errs, reg, NewVolumes)
	add(&all, &errs, reg, NewImages)
	add(&all, &errs, reg, NewGC)
	add(&all, &errs, reg, NewEviction)
	add(&all, &errs, reg, NewLogs)
	add(&all, &errs, reg, NewShutdown)
	add(&all, &errs, reg, NewResources)
	add(&all, &errs, reg, NewResourceClaims)
	return func(m runtime.Measurement) {
		for _, measure := range all {
			measure(m)
		}
	}, errors.Join(errs...)
}

func add[T interface{ Measure(runtime.Measurement) }](all *[]runtime.MeasureFunc, errs *[]error,
	reg prometheus.Registerer, make func(prometheus.Registerer) (T, error)) {
	part, err := make(reg)
	if err != nil {
		*errs = append(*errs, err)
		return
	}
	*all = append(*all, part.Measure)
}
