package oom

import "time"

// maxContainerKills is the number of containers whose kills are kept. The oldest ones are dropped: their containers are
// long gone.
const maxContainerKills = 1024

// containerKills are the kills that were attributed to containers, by the IDs of these.
type containerKills struct {
	byID  map[string]containerKill
	order []string // the IDs, the oldest first
}

// containerKill is that processes of a container were killed.
type containerKill struct {
	first    Kill
	last     time.Time // of the last one
	reported bool
}

// add keeps a kill. reported means that it is being reported.
func (c *containerKills) add(id string, k Kill, now time.Time, reported bool) {
	if c.byID == nil {
		c.byID = map[string]containerKill{}
	}
	killed, known := c.byID[id]
	if !known {
		killed.first, killed.reported = k, reported
		if len(c.order) == maxContainerKills {
			delete(c.byID, c.order[0])
			c.order = append(c.order[:0], c.order[1:]...)
		}
		c.order = append(c.order, id)
	}
	killed.last = now
	c.byID[id] = killed
}

// reported marks the kills of a container as reported. ok means that they were not, and returns the first of them.
func (c *containerKills) reported(id string) (first Kill, ok bool) {
	killed, known := c.byID[id]
	if !known || killed.reported {
		return Kill{}, false
	}
	killed.reported = true
	c.byID[id] = killed
	return killed.first, true
}

// The limit of events about one subject.
const (
	burst  = 5
	refill = time.Minute
	// maxSubjects is the number of subjects after which those without recent events are dropped.
	maxSubjects = 256
)

// limiter limits events. A subject has a burst of them, and one more each minute.
type limiter struct {
	bySubject map[string]bucket
}

type bucket struct {
	tokens int
	filled time.Time // when the last token was added
	left   int       // events that were left out since the last one
}

// allow reports whether the subject may have an event now, and the number of those that were left out before it.
func (l *limiter) allow(subject string, now time.Time) (left int, ok bool) {
	if l.bySubject == nil {
		l.bySubject = map[string]bucket{}
	}
	b, known := l.bySubject[subject]
	if !known {
		l.prune(now)
		b = bucket{tokens: burst, filled: now}
	}
	if n := int(now.Sub(b.filled) / refill); n > 0 {
		b.tokens, b.filled = min(burst, b.tokens+n), now
	}
	if b.tokens == 0 {
		b.left++
		l.bySubject[subject] = b
		return 0, false
	}
	left, b.left = b.left, 0
	b.tokens--
	l.bySubject[subject] = b
	return left, true
}

// prune drops the subjects whose burst is full again.
func (l *limiter) prune(now time.Time) {
	if len(l.bySubject) < maxSubjects {
		return
	}
	for subject, b := range l.bySubject {
		if now.Sub(b.filled) >= burst*refill {
			delete(l.bySubject, subject)
		}
	}
}
