package pleg

import "time"

// alarms are the times at which the goroutine of Run has something to do; zero is
// never.
type alarms struct {
	// relist begins, unless a list call is under way.
	relist time.Time
	// again has failed inspections tried again where no relist is soon.
	again time.Time
	// stall is when the runtime counts as stuck, if no inspection has ended by then.
	stall time.Time
	// judge is when what a relist has found counts as missed by the stream.
	judge time.Time
	// place is when a waiting inspection gets the place of one that takes too long.
	place time.Time
}

// next returns the first of them.
func (a *alarms) next() time.Time {
	var first time.Time
	for _, t := range []time.Time{a.relist, a.again, a.stall, a.judge, a.place} {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// ring reports whether it is time, and if so stops the alarm.
func ring(alarm *time.Time, now time.Time) bool {
	if alarm.IsZero() || alarm.After(now) {
		return false
	}
	*alarm = time.Time{}
	return true
}
