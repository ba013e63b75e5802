package cri

import "time"

// patience is how long the stop of a container may take until the runtime is taken to have
// sent the stop signal and to wait for the exit. No CRI call tells the two apart. If it is
// too short, a runtime that is slow gets more and more calls at once, and becomes slower. If
// it is too long, containers that ignore the signal delay the signals of others. So it
// follows what is seen: it grows with the time that containers take that exit at the
// signal, and is least when none has exited for a while. It is a value.
type patience struct {
	now time.Duration
	// since is when a container has last exited at the signal, or the first call was made.
	since time.Time
}

const (
	// firstPatience is that of the first calls: 8 containers that exit at once take about
	// half a second on two processors.
	firstPatience = 250 * time.Millisecond
	// maxPatience is enough for 8 such containers on two processors that are busy.
	maxPatience = time.Second
	// minPatience holds after quiet. A stop signal takes 30 ms of CPU time in containerd and
	// runc. 100 containers that ignore it are all signalled in 2 s, 8 at a time.
	minPatience = 100 * time.Millisecond
	// quiet is the time without an exit after which containers are taken to ignore the signal.
	quiet = time.Second
	// atOnce is the longest time in which a container exits that does so at the signal. One
	// that takes longer is no measure of the runtime.
	atOnce = 2 * time.Second
)

func newPatience(now time.Time) patience { return patience{firstPatience, now} }

// exited returns the patience after a container has exited within its grace period.
func (p patience) exited(now time.Time, took time.Duration) patience {
	if took > atOnce {
		return p
	}
	return patience{max(p.now, firstPatience, min(2*took, maxPatience)), now}
}

// outlasted returns the patience after a call has taken longer than it was given. Calls
// that were made with an earlier patience only count after a quiet time.
func (p patience) outlasted(now time.Time, given time.Duration) patience {
	switch {
	case now.Sub(p.since) >= quiet:
		p.now = minPatience
	case given == p.now:
		p.now = max(p.now/2, firstPatience)
	}
	return p
}
