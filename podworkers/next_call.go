package podworkers

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// callKind is a method of Syncer. Within an incarnation it never decreases.
type callKind int

const (
	noCall callKind = iota
	callSync
	callTerminating
	callOrphan
	callTerminated
)

// phase returns the phase in which the method is called.
func (k callKind) phase() Phase {
	switch k {
	case callSync:
		return PhaseSync
	case callTerminated:
		return PhaseTerminated
	default:
		return PhaseTerminating
	}
}

// call is a call of the Syncer that a machine requests.
type call struct {
	kind     callKind
	ref      runtime.PodRef
	typ      UpdateType // of callSync
	pod      *v1.Pod
	orphan   *runtime.Pod // of callOrphan
	after    runtime.Mark // the status must have been read after it
	term     Termination  // of callTerminating and callOrphan
	skip     skipRule     // of callTerminating
	received time.Time    // the oldest Update.Received of the updates that the call answers
}

// skipRule is the condition under which a pod that these workers have not started needs
// no SyncTerminatingPod.
type skipRule int

const (
	neverSkip      skipRule = iota
	skipIfAbsent            // nothing of the pod is in the runtime
	skipIfNoneRuns          // nothing of the pod runs; for pods in a final phase in the API
)

// applies reports whether a pod of that status needs no SyncTerminatingPod.
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

// due returns when the next call may be taken; the zero time is at once. It returns
// false if only an event makes a call due.
func (m machine) due() (time.Time, bool) {
	if !m.known() || m.finished || m.call.kind != noCall || m.phase == PhaseSync && !m.startAllowed {
		return time.Time{}, false
	}
	return m.schedule.due()
}

// take begins the next call if one is due.
func (m machine) take(now time.Time) (machine, call, bool) {
	if at, ok := m.due(); !ok || now.Before(at) {
		return m, call{}, false
	}
	c := call{ref: m.ref, pod: m.pod, orphan: m.orphan, after: m.mark, received: m.schedule.received}
	m.schedule = m.schedule.taken()
	switch {
	case m.phase == PhaseSync:
		c.kind, c.typ, m.nextType = callSync, m.nextType, Sync
		if m.startedAt.IsZero() {
			m.startedAt = now
		}
	case m.phase == PhaseTerminated:
		c.kind = callTerminated
	case m.orphan != nil:
		c.kind = callOrphan
	default:
		c.kind, m.end.outdated = callTerminating, false
		if m.startedAt.IsZero() && m.end.status == nil {
			c.skip = skipIfAbsent
			if m.end.inAPI {
				c.skip = skipIfNoneRuns
			}
		}
	}
	m.call = ongoing{kind: c.kind, typ: c.typ}
	if m.phase == PhaseTerminating {
		c.term = Termination{Evicted: m.end.evicted, Status: m.end.status}
		if grace := m.end.grace; grace > 0 {
			c.term.GracePeriod = &grace
			m.call.deadline = now.Add(podspec.Seconds(grace))
		}
	}
	return m, c, true
}
