package podworkers

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The reasons of records of [runtime.KindStopPod].
const (
	// ReasonRequested: an update of type Kill. The cause is in a record of the caller, if there
	// is one.
	ReasonRequested = "Requested"
	// ReasonDeleted: the pod was deleted in the API.
	ReasonDeleted = "Deleted"
	// ReasonNotDesired: the pod was not among those of SyncKnownPods.
	ReasonNotDesired = "NotDesired"
	// ReasonEvicted: a kill had Evict set.
	ReasonEvicted = "Evicted"
	// ReasonFinished: SyncPod has returned Terminal, or the pod came in a final phase.
	ReasonFinished = "Finished"
	// ReasonFailed: SyncPod has failed the pod for good.
	ReasonFailed = "Failed"
	// ReasonOrphan: the pod runs, and has no spec.
	ReasonOrphan = "Orphan"
)

// recordsOf returns the records of a transition. It allocates nothing for a transition that
// is of no interest, such as that of a sync that has succeeded.
func recordsOf(before, after machine, ev any, fx effects, now time.Time) []runtime.Record {
	var out []runtime.Record
	add := func(stage runtime.RecordStage, r runtime.Record) {
		r.Stage, r.Pod = stage, after.ref
		if !after.known() {
			r.Pod = before.ref
		}
		out = append(out, r)
	}
	if r, ok := ev.(returned); ok && r.err != nil && !before.call.cancelled && fx.failure == nil {
		ref := before.ref.String()
		add(runtime.StageDone, runtime.Record{
			Kind: runtime.KindSync, Reason: before.call.kind.phase().String(), Error: strings.ReplaceAll(r.err.Error(),
				"pod "+ref+": ", ""),
		})
	}
	if fx.failure != nil {
		add(runtime.StageDecided, runtime.Record{Kind: runtime.KindFail, Reason: fx.failure.Reason,
			Message: fx.failure.Message})
	} else if u, ok := ev.(updated); ok && u.reason != "" && before.known() && before.phase < PhaseTerminated &&
		before.end.failure == nil {
		add(runtime.StageDecided, runtime.Record{Kind: runtime.KindFail, Reason: u.reason, Message: u.message})
	}
	if !before.end.requested() && after.end.requested() {
		add(runtime.StageDecided, runtime.Record{
			Kind: runtime.KindStopPod, Reason: stopReason(after, ev), Duration: podspec.Seconds(after.end.grace),
		})
	}
	if stoppedBy(before, after, ev) {
		add(runtime.StageDone, runtime.Record{Kind: runtime.KindStopPod, Duration: now.Sub(before.end.requestedAt)})
	}
	if before.nameUse() != nameWanted && after.nameUse() == nameWanted {
		add(runtime.StageDecided, runtime.Record{Kind: runtime.KindWait})
	}
	return out
}

// withReason returns the event of an update, with the reason and the message that the Status
// of its kill sets. The function is the caller's, so no lock is held.
func withReason(u Update) updated {
	ev := updated{Update: u}
	if u.Kill != nil && u.Kill.Status != nil {
		var s v1.PodStatus
		// the syncer calls it again, and reports a panic
		_ = runtime.Recover(func() error { u.Kill.Status(&s); return nil })
		ev.reason, ev.message = s.Reason, s.Message
	}
	return ev
}

// stopReason returns why the end of the pod was requested with the event.
func stopReason(m machine, ev any) string {
	switch u := ev.(type) {
	case returned:
		if u.failure() != nil {
			return ReasonFailed
		}
		return ReasonFinished
	case compared:
		return ReasonNotDesired
	case updated:
		switch {
		case m.orphan != nil:
			return ReasonOrphan
		case m.end.evicted:
			return ReasonEvicted
		case u.Type == Kill:
			return ReasonRequested
		case m.end.deleted:
			return ReasonDeleted
		}
	}
	return ReasonFinished
}

// stoppedBy reports whether nothing of the pod runs any more since the event.
func stoppedBy(before, after machine, ev any) bool {
	r, ok := ev.(returned)
	if !ok || r.err != nil {
		return false
	}
	switch before.call.kind {
	case callTerminating:
		return after.phase == PhaseTerminated
	case callOrphan:
		return true
	default:
		return false
	}
}
