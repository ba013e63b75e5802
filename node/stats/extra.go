package stats

import (
	"context"
	"errors"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// extra reads the metrics that a runtime has beyond its usage, beside the readings, since
// runtimes take long for them.
type extra struct {
	reporter runtime.MetricsReporter // nil if the runtime has none
	machine  machine
	log      logr.Logger
	wanted   flow.Signal

	mu       sync.Mutex
	families []runtime.MetricFamily
	began    time.Time // when they were read
}

const (
	// extraTimeout bounds the time in which a runtime returns its metrics.
	extraTimeout = time.Minute
	// maxExtraAge is how long metrics are returned. A request for metrics causes the next read, so
	// they may be as old as the time between two scrapes.
	maxExtraAge = 5 * time.Minute

	// Between two reads are at least minExtraPause, the longest interval of cAdvisor, and
	// extraPauses times the duration of the last read: containerd 2.4 takes 10 s and 4 s of CPU
	// time for 100 pods. That is up to maxExtraPause, because Prometheus shows a sample with a
	// time of its own for 5 minutes.
	minExtraPause = 15 * time.Second
	extraPauses   = 15
	maxExtraPause = 4 * time.Minute
)

// What is kept of the metrics of a runtime. cAdvisor has about 100 metrics, and containerd 20
// samples for a container and metric at most, of which most are of devices.
const (
	maxFamilies    = 500
	maxExtraLabels = 20
	maxSamples     = 500_000
	maxLabelValue  = 1024
)

func newExtra(rt runtime.Runtime, opts *Options) *extra {
	e := &extra{machine: machine{proc: opts.proc}, wanted: flow.NewSignal()}
	e.reporter, _ = runtime.Optional[runtime.MetricsReporter](rt)
	return e
}

// Extra returns the last metrics that the runtime has beyond the usage of pods, and requests newer
// ones, which [Collector.Run] reads. Metrics of more than 5 minutes ago are left out. They are shared
// and read-only. Names, labels and values are valid, and a label "device" is the name of the device if
// the runtime reports its number. The reader joins the IDs with its pods.
func (c *Collector) Extra() []runtime.MetricFamily {
	e := c.extra
	e.wanted.Notify()
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.began) > maxExtraAge {
		return nil
	}
	return e.families
}

// run reads the metrics after a request, with pauses, until ctx ends.
func (e *extra) run(ctx context.Context) {
	if e.reporter == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wanted:
		}
		began := time.Now()
		families, err := e.read(ctx)
		took := time.Since(began)
		switch {
		case ctx.Err() != nil, errors.Is(err, errors.ErrUnsupported):
			return
		case err != nil:
			e.log.Info("The metrics of the runtime cannot be read", "reason", err.Error())
			families = nil // rather none than those of the past
		}
		e.mu.Lock()
		e.families, e.began = families, began
		e.mu.Unlock()
		if !flow.Sleep(ctx, min(max(minExtraPause, extraPauses*took), maxExtraPause)) {
			return
		}
	}
}

func (e *extra) read(ctx context.Context) (families []runtime.MetricFamily, err error) {
	ctx, cancel := context.WithTimeout(ctx, extraTimeout)
	defer cancel()
	err = runtime.Recover(func() (err error) {
		families, err = e.reporter.ListMetrics(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return saneFamilies(families, newDeviceNames(e.machine), time.Now()), nil
}

// saneFamilies drops what is not valid, replaces times as moment does, and gives devices their names.
func saneFamilies(list []runtime.MetricFamily, devices *deviceNames, now time.Time) []runtime.MetricFamily {
	var out []runtime.MetricFamily
	samples := 0
	for _, f := range list {
		if !isMetricName(f.Name) || len(f.Help) > maxLabelValue || !utf8.ValidString(f.Help) ||
			len(f.Labels) > maxExtraLabels || len(out) == maxFamilies || hasTwice(f.Labels) {
			continue
		}
		valid := true
		for _, l := range f.Labels {
			valid = valid && isLabelName(l)
		}
		if !valid {
			continue
		}
		kept := f
		kept.Samples = make([]runtime.MetricSample, 0, len(f.Samples))
		for _, s := range f.Samples {
			if samples < maxSamples && isSample(&f, &s) {
				if !s.Time.IsZero() {
					s.Time = moment(metav1.NewTime(s.Time), now).Time
				}
				s.LabelValues = devices.replace(f.Labels, s.LabelValues)
				kept.Samples = append(kept.Samples, s)
				samples++
			}
		}
		if len(kept.Samples) > 0 {
			out = append(out, kept)
		}
	}
	return out
}

func hasTwice(list []string) bool {
	seen := make(map[string]struct{}, len(list))
	for _, s := range list {
		seen[s] = struct{}{}
	}
	return len(seen) != len(list)
}

func isSample(f *runtime.MetricFamily, s *runtime.MetricSample) bool {
	if len(s.LabelValues) != len(f.Labels) || !(s.Value >= 0 && s.Value <= maxAmount*16) {
		return false
	}
	for _, v := range s.LabelValues {
		if len(v) > maxLabelValue || !utf8.ValidString(v) {
			return false
		}
	}
	return true
}

// isMetricName and isLabelName are the names of Prometheus' text format without colons.
func isMetricName(s string) bool { return len(s) <= 200 && isLabelName(s) }

func isLabelName(s string) bool {
	for i, c := range []byte(s) {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && (len(s) < 2 || s[:2] != "__")
}
