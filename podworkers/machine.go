package podworkers

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// machine is the state of the worker of one UID: a value, whose transitions are
// pure. The zero value is a pod that is not known.
type machine struct {
	ref    runtime.PodRef
	phase  Phase        // grows only, within an incarnation
	pod    *v1.Pod      // the latest spec; nil exactly for an orphan
	orphan *runtime.Pod // set exactly for an orphan, which is terminating or unknown
	static bool

	// granted says that the pod may start: no other of its full name is in the way.
	// Once true it stays.
	granted       bool
	startedAt     time.Time // when the first SyncPod of this incarnation was taken
	terminatingAt time.Time // when the end was first asked for
	terminatedAt  time.Time
	finished      bool // nothing more is to be called; phase is terminated
	deleted       bool
	evicted       bool
	undesired     bool // SyncKnownPods did not name it
	endedInAPI    bool // the pod came to us in a terminal phase

	// grace is the effective grace period in seconds, 0 until the end is asked for;
	// for an orphan until one is given. After that it shrinks only.
	grace  int64
	status func(*v1.PodStatus) // of the latest kill that had one
	// untold says that a call of SyncTerminatingPod is under way that does not know
	// of the latest eviction or status: one more is needed even if it succeeds.
	untold bool
	done   []func() // to be called when terminated

	// next is the first update of the next incarnation of this UID, nil if none is
	// wanted. Its Done was moved to done.
	next *Update

	call      callKind   // under way
	typ       UpdateType // of the SyncPod under way, or the last one
	cancelled bool       // the call under way has been cancelled
	deadline  time.Time  // when the grace of the terminating call under way runs out
	mark      runtime.Mark

	// When the next call is due: at once if ready; from floor on if hinted; at wake,
	// unless zero.
	ready, hinted bool
	floor, wake   time.Time
	changedSpec   bool // a Create or Change came since the last SyncPod was taken
	created       bool // SyncPod was called, or is about to be, with Create
	received      time.Time

	failures int // calls in a row that failed
	changes  int // SyncPods in a row that changed something by themselves
}

// The events of a machine.
type (
	// updated is an Update that has been validated. mark is used for a pod that was
	// not known.
	updated struct {
		Update
		mark runtime.Mark
	}
	// listed says whether the pod was among the desired ones.
	listed struct{ desired bool }
	// granted says that the pod may start.
	granted struct{}
	// returned ends the call under way. mark was drawn when it had returned.
	returned struct {
		Result
		err error
		// unread says that the pod's status could not be read, so that the syncer was
		// not called.
		unread bool
		mark   runtime.Mark
		// jitter is random from [0,1).
		jitter float64
	}
)

// effects is what has to be done beside the change of state.
type effects struct {
	cancel error    // cancel the call under way, for this cause
	done   []func() // call them
	// finished says that the pod has finished, also if its next incarnation has begun.
	finished bool
	// backoff is the delay until the call that has failed is repeated.
	backoff time.Duration
}

func (m machine) known() bool     { return m.phase != 0 }
func (m machine) requested() bool { return !m.terminatingAt.IsZero() }

// on is the transition: what becomes of the machine by an event. It decides on no
// call; that is take's.
func (m machine) on(p policy, now time.Time, ev any) (machine, effects) {
	switch ev := ev.(type) {
	case updated:
		return m.onUpdated(now, ev)
	case listed:
		return m.onListed(now, ev.desired)
	case granted:
		m.granted = true
	case returned:
		return m.onReturned(p, now, ev)
	}
	return m, effects{}
}

// onUpdated sorts an update to the incarnation it is for: this one or the next.
func (m machine) onUpdated(now time.Time, u updated) (machine, effects) {
	switch {
	case !m.known():
		return begin(u.Update, u.mark).absorb(now, u.Update)
	case m.orphan != nil && u.Pod != nil:
		return m.postpone(now, u.Update)
	case m.requested() && u.Type == Create && m.finished:
		return begin(u.Update, m.mark).absorb(now, u.Update)
	case m.requested() && u.Type == Create:
		m.next = &u.Update
		return m, effects{}
	case m.next != nil && u.Type != Kill:
		m.next = renew(m.next, u.Update)
		return m, effects{}
	case m.next != nil && u.Pod != nil: // a kill: the next one is not wanted either
		m.next = nil
	}
	return m.absorb(now, u.Update)
}

// begin returns a machine for an incarnation that has done nothing yet.
func begin(u Update, mark runtime.Mark) machine {
	m := machine{ref: u.ref(), phase: PhaseSync, pod: u.Pod, mark: mark}
	if u.Pod == nil {
		m.orphan = u.Orphan
		return m
	}
	m.static = runtime.IsStatic(u.Pod)
	m.granted = !m.static
	m.endedInAPI = terminalPhase(u.Pod)
	return m
}

// postpone keeps an update of a real pod until the orphan of its UID has ended.
// What a kill says of grace and Done holds for the orphan at once.
func (m machine) postpone(now time.Time, u Update) (machine, effects) {
	if u.Type != Kill {
		m.next = renew(m.next, u)
		return m, effects{}
	}
	k := *u.kill()
	m.done = appended(m.done, k.Done)
	k.Done = nil
	if m.next != nil && m.next.Type == Kill {
		old := m.next.kill()
		k.Evict = k.Evict || old.Evict
		if grace := shorter(shorter(0, old.GracePeriod), k.GracePeriod); grace > 0 {
			k.GracePeriod = &grace
		}
		if k.Status == nil {
			k.Status = old.Status
		}
	}
	next := u
	next.Kill = &k
	m.next = &next
	return m.shorten(now, u)
}

// renew merges an update that is not a kill into the pending one: the latest
// pod, and the type Kill as long as no Create says otherwise.
func renew(old *Update, u Update) *Update {
	if old != nil && u.Type != Create {
		merged := *old
		merged.Pod = u.Pod
		return &merged
	}
	return &u
}

// absorb takes an update into this incarnation.
func (m machine) absorb(now time.Time, u Update) (machine, effects) {
	k := u.kill()
	if m.phase == PhaseTerminated {
		// Nothing of the pod runs: a kill has what it wants.
		if u.Pod != nil && !m.finished {
			m.pod = u.Pod
			m.ready, m.hinted = m.ready || u.Type != Sync, true
			m.deleted = m.deleted || u.Pod.DeletionTimestamp != nil
		}
		return m, effects{done: appended(nil, k.Done)}
	}

	if u.Pod != nil {
		m.pod = u.Pod
	}
	if !u.Received.IsZero() && (m.received.IsZero() || u.Received.Before(m.received)) {
		m.received = u.Received
	}
	switch u.Type {
	case Sync:
		m.hinted = true
	default:
		m.ready = true
		m.changes = 0
		m.changedSpec = m.changedSpec || u.Type != Kill
	}

	m.deleted = m.deleted || u.Pod == nil || u.Pod.DeletionTimestamp != nil
	var fx effects
	if m.deleted || u.Type == Kill || m.pod != nil && terminalPhase(m.pod) {
		m, fx = m.request(now)
	}
	if !m.requested() {
		return m, fx
	}
	if k.Evict && !m.evicted || k.Status != nil {
		m.untold = m.call == callTerminating
	}
	m.evicted = m.evicted || k.Evict
	if k.Status != nil {
		m.status = k.Status
	}
	m.done = appended(m.done, k.Done)
	m, short := m.shorten(now, u)
	if fx.cancel == nil {
		fx = short
	}
	return m, fx
}

// request asks for the end of the pod, if that was not done yet.
func (m machine) request(now time.Time) (machine, effects) {
	if m.requested() {
		return m, effects{}
	}
	m.terminatingAt = now
	m.failures, m.wake, m.floor = 0, time.Time{}, time.Time{}
	if m.call == callSync {
		// The phase follows when SyncPod has returned.
		m.cancelled = true
		return m, effects{cancel: ErrTerminating}
	}
	m.phase, m.ready = PhaseTerminating, true
	return m, effects{}
}

// shorten brings the grace period up to date. A terminating call under way is
// cancelled if its containers would otherwise have longer to live.
func (m machine) shorten(now time.Time, u Update) (machine, effects) {
	was := m.grace
	if m.orphan != nil {
		m.grace = shorter(m.grace, u.kill().GracePeriod)
	} else {
		m.grace = effectiveGrace(m.grace, m.pod, u.kill().GracePeriod)
	}
	if m.grace == was {
		return m, effects{}
	}
	m.ready = true
	inFlight := m.call == callTerminating || m.call == callOrphan
	if inFlight && !m.cancelled && (m.deadline.IsZero() || now.Add(seconds(m.grace)).Before(m.deadline)) {
		m.cancelled = true
		return m, effects{cancel: ErrShortened}
	}
	return m, effects{}
}

// onListed is what the housekeeping has to say. A finished pod that is not
// desired is forgotten; any other has to end.
func (m machine) onListed(now time.Time, desired bool) (machine, effects) {
	m.undesired = !desired
	if desired || !m.known() {
		return m, effects{}
	}
	if m.finished {
		return machine{}, effects{}
	}
	if m.next != nil && m.next.Type != Kill {
		m.next = nil
	}
	m.deleted = true
	m, fx := m.request(now)
	if m.orphan == nil && m.grace == 0 {
		m.grace = effectiveGrace(0, m.pod, nil)
	}
	return m, fx
}

// onReturned digests the outcome of the call under way.
func (m machine) onReturned(p policy, now time.Time, r returned) (machine, effects) {
	kind, cancelled := m.call, m.cancelled
	m.call, m.cancelled, m.deadline = noCall, false, time.Time{}
	if kind != callSync || r.Changed || r.err != nil || cancelled {
		m.mark = r.mark
	}
	if kind == callSync && r.unread { // the next call has to tell what this one did not
		m.created = m.created && m.typ != Create
		m.changedSpec = m.changedSpec || m.typ == Change
	}

	switch {
	case kind == callSync && m.requested():
		// However it went, it was the last one.
		m.phase, m.ready, m.failures = PhaseTerminating, true, 0
		return m, effects{}
	case r.err != nil && cancelled:
		m.ready = true
		return m, effects{}
	case r.err != nil:
		m.failures++
		backoff := min(p.backoff(m.failures, r.jitter), orForever(r.RetryAfter))
		m.wake, m.floor = now.Add(backoff), now.Add(p.base)
		return m, effects{backoff: backoff}
	}
	m.failures, m.floor, m.wake = 0, time.Time{}, time.Time{}

	switch kind {
	case callSync:
		return m.synced(p, now, r), effects{}
	case callTerminating:
		if m.untold {
			m.ready = true
			return m, effects{}
		}
		m.phase, m.terminatedAt, m.ready = PhaseTerminated, now, true
		fx := effects{done: m.done}
		m.done = nil
		return m, fx
	case callOrphan:
		fx := effects{done: m.done}
		if m.next == nil {
			return machine{}, fx
		}
		next, more := m.reborn(now)
		fx.done = append(fx.done, more.done...)
		return next, fx
	case callTerminated:
		m.finished, m.ready, m.hinted = true, false, false
		if m.next == nil {
			return m, effects{finished: true}
		}
		next, fx := m.reborn(now)
		fx.finished = true
		return next, fx
	}
	return m, effects{}
}

// synced decides when to sync next after a SyncPod that went well.
func (m machine) synced(p policy, now time.Time, r returned) machine {
	if r.Terminal {
		m, _ = m.request(now)
		m.grace = effectiveGrace(0, m.pod, nil)
		return m
	}
	wait := orForever(r.RetryAfter)
	if !r.Changed {
		m.changes = 0
		wait = min(wait, p.resync(now, r.jitter))
	} else if m.changes++; m.changes > p.freeChanges {
		// It changes something each time it looks: do not let it spin.
		pause := p.pause(m.changes)
		wait = min(wait, pause)
		m.floor = now.Add(pause)
	} else {
		m.ready = true
	}
	if wait < forever {
		m.wake = now.Add(wait)
	}
	return m
}

// reborn starts the next incarnation.
func (m machine) reborn(now time.Time) (machine, effects) {
	return begin(*m.next, m.mark).absorb(now, *m.next)
}

// snapshot is the machine as others see it.
func (m machine) snapshot() State {
	if !m.known() {
		return State{}
	}
	return State{
		Phase:            m.phase,
		FullName:         m.ref.FullName(),
		Finished:         m.finished,
		Deleted:          m.deleted,
		Evicted:          m.evicted,
		RestartRequested: m.next != nil && m.next.Type != Kill,
		Orphan:           m.undesired || m.orphan != nil,
		HasConfig:        m.pod != nil,
		Static:           m.static,
		Waiting:          m.claim() == claimWaits,
		GracePeriod:      m.grace,
		StartedAt:        m.startedAt,
		TerminatingAt:    m.terminatingAt,
		TerminatedAt:     m.terminatedAt,
	}
}

// appended returns list with f, in memory of its own, so that machines stay
// values. A nil f is left out.
func appended(list []func(), f func()) []func() {
	if f == nil {
		return list
	}
	return append(list[:len(list):len(list)], f)
}
