package podworkers

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// callKind is the method of the syncer that a call is of.
type callKind int

const (
	noCall callKind = iota
	callSync
	callTerminating
	callOrphan
	callTerminated
)

// call is one piece of work that a machine has decided on.
type call struct {
	kind     callKind
	ref      runtime.PodRef
	typ      UpdateType // of callSync
	pod      *v1.Pod
	orphan   *runtime.Pod // of callOrphan
	after    runtime.Mark // the status must have been read after it
	term     Termination  // of callTerminating and callOrphan
	skip     skipRule     // of callTerminating
	received time.Time    // the oldest Update.Received that the call answers
}

// skipRule says when a pod that this agent never started needs no
// SyncTerminatingPod.
type skipRule int

const (
	neverSkip      skipRule = iota
	skipIfAbsent            // nothing of the pod is in the runtime
	skipIfNoneRuns          // nothing of the pod runs; for pods that the API calls ended
)

// applies reports whether the rule lets a pod of that status go without.
func (r skipRule) applies(status *runtime.PodStatus) bool {
	switch r {
	case skipIfAbsent:
		return len(status.Sandboxes) == 0 && len(status.Containers) == 0
	case skipIfNoneRuns:
		return !status.Running()
	default:
		return false
	}
}

// due returns when the next call may be taken; the zero time is at once. It
// returns false if nothing is to be called, as far as is known.
func (m machine) due() (time.Time, bool) {
	switch {
	case !m.known() || m.finished || m.call != noCall || m.phase == PhaseSync && !m.granted:
		return time.Time{}, false
	case m.ready:
		return time.Time{}, true
	case m.hinted && (m.wake.IsZero() || m.floor.Before(m.wake)):
		return m.floor, true
	default:
		return m.wake, !m.wake.IsZero()
	}
}

// take begins the next call if one is due.
func (m machine) take(now time.Time) (machine, call, bool) {
	if at, ok := m.due(); !ok || now.Before(at) {
		return m, call{}, false
	}
	c := call{ref: m.ref, pod: m.pod, orphan: m.orphan, after: m.mark, received: m.received}
	m.ready, m.hinted, m.wake, m.floor, m.received = false, false, time.Time{}, time.Time{}, time.Time{}
	switch {
	case m.phase == PhaseSync:
		c.kind, c.typ = callSync, Sync
		if !m.created {
			c.typ, m.created = Create, true
		} else if m.changedSpec {
			c.typ = Change
		}
		if m.startedAt.IsZero() {
			m.startedAt = now
		}
		m.changedSpec, m.typ = false, c.typ
	case m.phase == PhaseTerminated:
		c.kind = callTerminated
	default:
		c.kind, m.untold = callTerminating, false
		c.term = Termination{Evicted: m.evicted, Status: m.status}
		if m.orphan != nil {
			c.kind = callOrphan
		}
		if grace := m.grace; grace > 0 {
			c.term.GracePeriod = &grace
			m.deadline = now.Add(seconds(grace))
		}
		if m.startedAt.IsZero() && m.status == nil {
			c.skip = skipIfAbsent
			if m.endedInAPI {
				c.skip = skipIfNoneRuns
			}
		}
	}
	m.call = c.kind
	return m, c, true
}
