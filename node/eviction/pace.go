package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// The times between two readings. A reading costs about 0.1 ms.
const (
	farPeriod     = 10 * time.Second
	nearPeriod    = time.Second
	fastestPeriod = 100 * time.Millisecond
)

// growth is how much of a resource can be used up in a second: 1 GB/s of memory or disk, 10,000 files or processes.
func growth(name v1.ResourceName) int64 {
	if name == resourceInodes || name == resourcePIDs {
		return 10_000
	}
	return 1_000_000_000
}

// pace returns the time until the next reading. It is short while a threshold could be met soon: by what can be
// used up until then, and by what was used up between the last two readings.
func pace(thresholds []Threshold, before, now Readings) time.Duration {
	period := farPeriod
	for _, t := range thresholds {
		r, ok := now[t.Signal]
		if !ok {
			continue
		}
		left := r.Available - t.need(r.Capacity, false)
		if left/growth(t.Signal.Resource()) >= int64(farPeriod/time.Second) {
			continue
		}
		period = min(period, nearPeriod)
		b, ok := before[t.Signal]
		used, passed := b.Available-r.Available, r.At.Sub(b.At)
		if !ok || left <= 0 || used <= 0 || passed <= 0 {
			continue
		}
		// At half of the time until the threshold is met by the same rate.
		if until := float64(left) / float64(used) * float64(passed) / 2; until < float64(period) {
			period = max(fastestPeriod, time.Duration(until))
		}
	}
	return period
}
