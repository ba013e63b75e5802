package prober

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var kinds = [...]runtime.ProbeKind{runtime.StartupProbe, runtime.LivenessProbe, runtime.ReadinessProbe}

// settings are the numbers of a probe, with the API's defaults.
type settings struct {
	delay, period, timeout time.Duration
	success, failure       int
}

func settingsOf(p *v1.Probe) settings {
	or := func(n, def int32) int32 {
		if n <= 0 {
			return def
		}
		return n
	}
	return settings{
		delay:   time.Duration(max(p.InitialDelaySeconds, 0)) * time.Second,
		period:  time.Duration(or(p.PeriodSeconds, 10)) * time.Second,
		timeout: time.Duration(or(p.TimeoutSeconds, 1)) * time.Second,
		success: int(or(p.SuccessThreshold, 1)),
		failure: int(or(p.FailureThreshold, 3)),
	}
}

// tracker decides when one probe of one container is attempted, and what its
// attempts amount to. It has no timers and calls nothing.
type tracker struct {
	kind runtime.ProbeKind
	settings

	// id is the newest instance that was observed; zero before there was one.
	id runtime.ContainerID
	// due is the time of its next attempt; zero until it is known.
	due time.Time
	// last is the outcome of the latest attempt, and run the number of attempts in a
	// row with that outcome.
	last bool
	run  int
	// settled means that no further attempt is made on this instance.
	settled bool
}

// observation is the input of [tracker.observe].
type observation struct {
	// instance is the newest instance of the container, nil if there is none.
	instance *runtime.ContainerStatus
	// started means that the instance has passed its startup probe, or has none.
	started bool
	// jitter is the fraction of the period by which the first attempt is delayed.
	jitter float64
	now    time.Time
}

// observe takes in an observation and returns the time of the next attempt, or
// false if there is none until something changes.
func (t *tracker) observe(o observation) (due time.Time, ok bool) {
	if o.instance == nil {
		return time.Time{}, false
	}
	if o.instance.ID != t.id {
		*t = tracker{kind: t.kind, settings: t.settings, id: o.instance.ID}
	}
	switch {
	case t.settled, o.instance.State != runtime.ContainerRunning:
		return time.Time{}, false
	case o.started == (t.kind == runtime.StartupProbe):
		return time.Time{}, false
	}
	if t.due.IsZero() {
		// If the runtime's clock is off, the delay is still no longer than the spec's.
		left := min(t.delay-o.now.Sub(o.instance.StartedAt), t.delay)
		t.due = o.now.Add(max(left, 0) + time.Duration(o.jitter*float64(t.period)))
	}
	return t.due, true
}

// begin is called when an attempt begins.
func (t *tracker) begin(now time.Time) {
	// An attempt that took longer than a period is followed by the next at once; the
	// others that were due meanwhile are left out.
	t.due = now.Add(t.period)
}

// record takes in the outcome of an attempt. It returns ok if a threshold is
// reached, and then whether the instance is healthy.
func (t *tracker) record(success bool) (healthy, ok bool) {
	if success != t.last {
		t.run = 0
	}
	t.last = success
	t.run++
	threshold := t.failure
	if success {
		threshold = t.success
	}
	if t.run < threshold {
		return false, false
	}
	t.settled = t.kind == runtime.StartupProbe || t.kind == runtime.LivenessProbe && !success
	return success, true
}
