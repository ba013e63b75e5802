package podworkers

import "time"

// schedule determines when the next call for a pod is due.
type schedule struct {
	// ready means that it is due at once.
	ready bool
	// hinted means that there was an update of type Sync, so the call is due at notBefore;
	// the zero time is at once.
	hinted    bool
	notBefore time.Time
	// wake is the time when the call is due without any update; zero means never.
	wake time.Time
	// received is the oldest Update.Received of the updates that no call has answered.
	received time.Time

	failures int // calls in a row that failed
	changes  int // SyncPods in a row that changed something, without an update but Sync
	rests    int // SyncPods in a row that found the pod at rest, without an update
}

// due returns when the next call is due; the zero time is at once. It returns false if
// only an event makes a call due.
func (s schedule) due() (time.Time, bool) {
	switch {
	case s.ready:
		return time.Time{}, true
	case s.hinted && (s.wake.IsZero() || s.notBefore.Before(s.wake)):
		return s.notBefore, true
	default:
		return s.wake, !s.wake.IsZero()
	}
}

// taken returns the schedule after a call was taken.
func (s schedule) taken() schedule {
	return schedule{failures: s.failures, changes: s.changes, rests: s.rests}
}

// update returns the schedule after an update.
func (s schedule) update(u Update) schedule {
	if !u.Received.IsZero() && (s.received.IsZero() || u.Received.Before(s.received)) {
		s.received = u.Received
	}
	s.rests = 0
	if u.Type == Sync {
		s.hinted = true
	} else {
		s.ready, s.changes = true, 0
	}
	return s
}

// reset returns the schedule at the beginning of a phase: a call is due at once.
func (s schedule) reset() schedule {
	s.ready, s.failures, s.notBefore, s.wake = true, 0, time.Time{}, time.Time{}
	return s
}

// failed returns the schedule after a call that failed, and the back-off.
func (s schedule) failed(p policy, now time.Time, r returned) (schedule, time.Duration) {
	s.failures++
	backoff := min(p.backoff(s.failures, r.jitter), orForever(r.RetryAfter))
	s.wake, s.notBefore = now.Add(backoff), now.Add(p.base)
	return s, backoff
}

// synced returns the schedule after a SyncPod that succeeded.
func (s schedule) synced(p policy, now time.Time, r returned) schedule {
	s.failures, s.notBefore, s.wake = 0, time.Time{}, time.Time{}
	wait := orForever(r.RetryAfter)
	if !r.Changed {
		s.changes = 0
		if !r.AtRest {
			s.rests = 0
		}
		wait = min(wait, p.resync(now, r.jitter, s.rests))
		s.rests++
	} else if s.changes++; s.changes > freeChanges {
		// Each call changes something, which may go on for ever: slow down.
		pause := p.pause(s.changes)
		wait = min(wait, pause)
		s.notBefore = now.Add(pause)
	} else {
		s.ready = true
	}
	if wait < forever {
		s.wake = now.Add(wait)
	}
	return s
}
