package podworkers

import (
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// machine is the state of the worker of one UID: a value whose transitions are pure
// functions. The zero value is a pod that is not known.
type machine struct {
	ref      runtime.PodRef
	fullName string       // of ref
	pod      *v1.Pod      // the latest spec; nil exactly for an orphan
	orphan   *runtime.Pod // set exactly for an orphan, which is terminating or not known
	static   bool
	// undesired means that the pod was not desired in the latest SyncKnownPods.
	undesired bool

	phase Phase // never goes back within an incarnation
	// startAllowed means that no other pod of its full name prevents the start of this one.
	// It is never reset within an incarnation.
	startAllowed bool
	startedAt    time.Time // when the first SyncPod of this incarnation was taken
	terminatedAt time.Time
	finished     bool // no call follows; phase is PhaseTerminated

	end  termination
	next *Update // the first update of the next incarnation of this UID; nil: none. Its Done is in end.

	call     ongoing
	nextType UpdateType   // the type of the next SyncPod: Create, Change or Sync
	mark     runtime.Mark // the next call needs a status that was read after it
	schedule schedule
}

// ongoing is the call under way; the zero value if there is none.
type ongoing struct {
	kind      callKind
	typ       UpdateType // of a SyncPod
	cancelled bool
	deadline  time.Time // when the grace period of a terminating call ends; zero: not known
}

// terminating reports whether the call stops containers.
func (o ongoing) terminating() bool { return o.kind == callTerminating || o.kind == callOrphan }

// The events of a machine.
type (
	// updated is a valid Update. If the pod was not known, mark is its first mark. reason and
	// message are those that the Status of its kill sets; only records need them.
	updated struct {
		Update
		mark            runtime.Mark
		reason, message string
	}
	// compared is a SyncKnownPods with or without the pod.
	compared struct{ desired bool }
	// allowStart means that no other pod of the full name prevents the start any more.
	allowStart struct{}
	// returned is the end of the call under way. mark was drawn after the call.
	returned struct {
		Result
		err error
		// unread means that the pod's status could not be read; the syncer was not called.
		unread bool
		mark   runtime.Mark
		// jitter is a random number from [0,1).
		jitter float64
	}
)

// failure returns the error by which a SyncPod fails its pod for good, or nil.
func (r returned) failure() *runtime.TerminalError {
	var failure *runtime.TerminalError
	if r.unread || !errors.As(r.err, &failure) {
		return nil
	}
	return failure
}

// effects are the actions that follow from a transition. The zero value is none.
type effects struct {
	cancel error    // cancel the call under way with this cause
	done   []func() // call these
	// finished means that the pod has finished, also if its next incarnation has begun.
	finished bool
	// failure is the error by which the pod has failed for good with this transition.
	failure *runtime.TerminalError
	// backoff is the delay until the call that has failed is repeated.
	backoff time.Duration
}

func (m machine) known() bool { return m.phase != 0 }

// on is the transition of the machine. It does not begin a call; take does.
func (m machine) on(p policy, now time.Time, ev any) (machine, effects) {
	switch ev := ev.(type) {
	case updated:
		return m.onUpdated(now, ev)
	case compared:
		return m.onCompared(now, ev.desired)
	case allowStart:
		m.startAllowed = true
	case returned:
		return m.onReturned(p, now, ev)
	}
	return m, effects{}
}

// onUpdated applies an update to this incarnation or keeps it for the next one.
func (m machine) onUpdated(now time.Time, u updated) (machine, effects) {
	if u.OnlyKnown {
		known, ok := m.onlyKnown(u.Update)
		if !ok {
			return m, effects{done: appended(nil, u.kill().Done)}
		}
		u.Update = known
	}
	switch {
	case !m.known():
		return begin(u.Update, u.mark).apply(now, u.Update)
	case m.orphan != nil && u.Pod != nil:
		return m.postpone(now, u.Update)
	case m.finished && u.Type == Create:
		return begin(u.Update, m.mark).apply(now, u.Update)
	case m.end.requested() && u.Type == Create:
		m.next = &u.Update
		return m, effects{}
	case m.next != nil && u.Type != Kill:
		m.next = merged(m.next, u.Update)
		return m, effects{}
	case m.next != nil && u.Pod != nil: // a kill ends the next incarnation too
		m.next = nil
	}
	return m.apply(now, u.Update)
}

// onlyKnown returns an update with [Update.OnlyKnown] as an update of the spec that is
// known, or false if the pod is not known.
func (m machine) onlyKnown(u Update) (Update, bool) {
	switch {
	case m.next != nil:
		u.Pod = m.next.Pod
	case m.pod != nil:
		u.Pod = m.pod
	case m.orphan != nil && u.Type == Kill:
		u.Pod, u.Orphan = nil, m.orphan
	default:
		return u, false
	}
	return u, true
}

// apply applies an update to this incarnation.
func (m machine) apply(now time.Time, u Update) (machine, effects) {
	k := u.kill()
	if m.phase == PhaseTerminated { // nothing of the pod runs: Done is called at once
		if u.Pod != nil && !m.finished {
			m.pod = u.Pod
			m.schedule = m.schedule.update(u)
			m.end.deleted = m.end.deleted || u.Pod.DeletionTimestamp != nil
		}
		return m, effects{done: appended(nil, k.Done)}
	}

	if u.Pod != nil {
		m.pod = u.Pod
	}
	m.schedule = m.schedule.update(u)
	if u.Type == Create || u.Type == Change {
		m.nextType = min(m.nextType, Change)
	}
	m.end.deleted = m.end.deleted || u.Pod == nil || u.Pod.DeletionTimestamp != nil
	var fx effects
	if m.end.deleted || u.Type == Kill || m.pod != nil && podspec.IsPhaseTerminal(m.pod.Status.Phase) {
		m, fx = m.requestEnd(now)
	}
	if !m.end.requested() {
		return m, fx
	}
	m.end = m.end.kill(k, m.call.kind == callTerminating)
	m, shortened := m.shorten(now, k.GracePeriod)
	if fx.cancel == nil {
		fx = shortened
	}
	return m, fx
}

// onCompared ends a pod that is not desired, or forgets it if it has finished.
func (m machine) onCompared(now time.Time, desired bool) (machine, effects) {
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
	m.end.deleted = true
	m, fx := m.requestEnd(now)
	if m.orphan == nil && m.end.grace == 0 {
		m.end.grace = effectiveGracePeriod(0, m.pod, nil)
	}
	return m, fx
}

// onReturned applies the outcome of the call under way.
func (m machine) onReturned(p policy, now time.Time, r returned) (machine, effects) {
	call := m.call
	m.call = ongoing{}
	if call.kind != callSync || r.Changed || r.err != nil || call.cancelled {
		m.mark = r.mark
	}
	if call.kind == callSync && r.unread {
		m.nextType = min(m.nextType, call.typ)
	}

	switch {
	case call.kind == callSync && m.end.requested():
		// The outcome does not matter any more, except for a failure for good.
		m.phase, m.schedule = PhaseTerminating, m.schedule.reset()
		return m.fail(r.failure())
	case call.kind == callSync && r.failure() != nil:
		return m.endByItself(now).fail(r.failure())
	case r.err != nil && call.cancelled:
		m.schedule.ready = true
		return m, effects{}
	case r.err != nil:
		var backoff time.Duration
		m.schedule, backoff = m.schedule.failed(p, now, r)
		return m, effects{backoff: backoff}
	}

	switch call.kind {
	case callSync:
		if r.Terminal {
			return m.endByItself(now), effects{}
		}
		m.schedule = m.schedule.synced(p, now, r)
	case callTerminating:
		m.schedule = m.schedule.reset()
		if m.end.outdated {
			return m, effects{}
		}
		m.phase, m.terminatedAt = PhaseTerminated, now
		done := m.end.done
		m.end.done = nil
		return m, effects{done: done}
	case callOrphan:
		next, fx := m.beginNext(now)
		fx.done = append(m.end.done[:len(m.end.done):len(m.end.done)], fx.done...)
		return next, fx
	case callTerminated:
		m.finished, m.schedule = true, schedule{}
		fx := effects{}
		if m.next != nil {
			m, fx = m.beginNext(now)
		}
		fx.finished = true
		return m, fx
	}
	return m, effects{}
}

// snapshot returns the machine as a State.
func (m machine) snapshot() State {
	if !m.known() {
		return State{}
	}
	return State{
		Phase:            m.phase,
		FullName:         m.fullName,
		Finished:         m.finished,
		Deleted:          m.end.deleted,
		Evicted:          m.end.evicted,
		Failure:          m.end.failure,
		RestartRequested: m.next != nil && m.next.Type != Kill,
		Orphan:           m.undesired || m.orphan != nil,
		HasConfig:        m.pod != nil,
		Static:           m.static,
		Waiting:          m.nameUse() == nameWanted,
		GracePeriod:      m.end.grace,
		StartedAt:        m.startedAt,
		TerminatingAt:    m.end.requestedAt,
		TerminatedAt:     m.terminatedAt,
	}
}
