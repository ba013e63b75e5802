package pleg

import (
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// patience is how long an inspection may take before it no longer counts against
// the bound. Healthy runtimes answer in milliseconds.
const patience = time.Second

// flights decides which inspections are under way: those that are asked for
// begin in order, as many side by side as the bound says, limit at most. One that
// takes longer than patience goes on outside of the bound, so each place is free
// for others again after a second at the latest. It belongs to one goroutine.
type flights struct {
	limit int
	bound bound
	// waiting are the records whose inspection is asked for, in order.
	waiting []*record
	// busy counts the flights that count against the limit.
	busy int
	// young are the flights by their beginning. Those that have landed are taken off
	// when they come first.
	young []*flight
}

// flight is one inspection under way.
type flight struct {
	record *record
	ref    runtime.PodRef
	after  runtime.Mark
	began  time.Time
	// counts says that the flight counts against the limit.
	counts bool
}

func (fs *flights) wait(records []*record) {
	fs.waiting = append(fs.waiting, records...)
}

// next returns the flight that is to begin now, or nil. Then, if some have to
// wait for place, wake is the time until expire makes some.
func (fs *flights) next(now time.Time) (f *flight, wake time.Duration) {
	for len(fs.waiting) > 0 {
		if fs.busy >= fs.bound.value(fs.limit) {
			// Some flight counts, so young is not empty and the first of it counts.
			return nil, max(fs.young[0].began.Add(patience).Sub(now), 1)
		}
		r := fs.waiting[0]
		fs.waiting[0] = nil
		fs.waiting = fs.waiting[1:]
		after, wanted := r.takeOff()
		if !wanted {
			continue
		}
		f := &flight{record: r, ref: r.ref, after: after, began: now, counts: true}
		fs.busy++
		fs.young = append(fs.young, f)
		return f, 0
	}
	fs.waiting = nil
	return nil, 0
}

// land takes off a flight that has ended.
func (fs *flights) land(f *flight, now time.Time) {
	fs.release(f, now)
	fs.trim()
}

// expire lets the flights that have used up their patience no longer count.
func (fs *flights) expire(now time.Time) {
	for _, f := range fs.young {
		if now.Sub(f.began) < patience {
			break
		}
		fs.release(f, now)
	}
	fs.trim()
}

// release lets a flight no longer count, and tells the bound how long it took.
func (fs *flights) release(f *flight, now time.Time) {
	if !f.counts {
		return
	}
	f.counts = false
	fs.busy--
	switch {
	case len(fs.waiting) > 0:
		fs.bound.landed(now.Sub(f.began), fs.limit)
	case fs.busy == 0:
		fs.bound.ended()
	}
}

// trim removes the first flights that no longer count, so that the first of
// young, if there is any, counts.
func (fs *flights) trim() {
	for len(fs.young) > 0 && !fs.young[0].counts {
		fs.young[0] = nil
		fs.young = fs.young[1:]
	}
	if len(fs.young) == 0 {
		fs.young = nil
	}
}
