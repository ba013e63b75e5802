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

// course is one probe of one container on its way from instance to instance. It
// does nothing by itself: it is told what is observed and says when to probe.
type course struct {
	kind runtime.ProbeKind
	settings

	// id is the instance that is followed; zero before there was one.
	id runtime.ContainerID
	// due is when its next attempt is, zero as long as that is not known.
	due time.Time
	// last is the outcome of the latest attempt, and run how many there were like it
	// without a break.
	last bool
	run  int
	// settled says that no attempt can change the verdict of this instance.
	settled bool
}

// view is what a course is told.
type view struct {
	// instance is the newest instance of the container, nil if there is none.
	instance *runtime.ContainerStatus
	// started says that the instance has passed its startup probe, or has none.
	started bool
	// jitter is by which fraction of the period the first attempt is put off.
	jitter float64
	now    time.Time
}

// follow takes in what is observed, and returns the time of the next attempt, or
// false if there is none until something changes.
func (c *course) follow(v view) (due time.Time, ok bool) {
	if v.instance == nil {
		return time.Time{}, false
	}
	if v.instance.ID != c.id {
		*c = course{kind: c.kind, settings: c.settings, id: v.instance.ID}
	}
	switch {
	case c.settled, v.instance.State != runtime.ContainerRunning:
		return time.Time{}, false
	case v.started == (c.kind == runtime.StartupProbe):
		return time.Time{}, false
	}
	if c.due.IsZero() {
		// Should the runtime's clock be off, the delay is still no longer than it says.
		left := min(c.delay-v.now.Sub(v.instance.StartedAt), c.delay)
		c.due = v.now.Add(max(left, 0) + time.Duration(v.jitter*float64(c.period)))
	}
	return c.due, true
}

// begin is called when an attempt begins.
func (c *course) begin(now time.Time) {
	// An attempt that took longer than a period is followed by the next one at once;
	// what was missed is not made up for.
	c.due = now.Add(c.period)
}

// record takes in the outcome of an attempt and returns the verdict if there is
// one.
func (c *course) record(success bool) (verdict, ok bool) {
	if success != c.last {
		c.run = 0
	}
	c.last = success
	c.run++
	threshold := c.failure
	if success {
		threshold = c.success
	}
	if c.run < threshold {
		return false, false
	}
	c.settled = c.kind == runtime.StartupProbe || c.kind == runtime.LivenessProbe && !success
	return success, true
}
