package pleg

import "github.com/kubeletkit/kubeletkit/runtime"

// record is the state of one pod in the generator.
type record struct {
	ref runtime.PodRef
	// view is the newest view of the pod, from a list or a status; nil if it shows nothing.
	// Each difference between two values of view has become an event.
	view *runtime.Pod
	// listed is the pod in the last relist, nil if it was not listed. relist is the number
	// of the last relist that listed it.
	listed *runtime.Pod
	relist uint64
	// compared is the mark of the newest status that was compared with view.
	compared runtime.Mark
	// overlap is the number of the last list call during which a status has changed view,
	// 0 if there was none; see records.overlapped.
	overlap uint64
	// removed are the removals between the latest views. IDs are not used twice, so a view
	// that has one of the removed IDs is older, unless it is certain to be newer.
	removed []Event
	// disputes counts the relists in a row that contradicted a status although the list
	// itself had not changed.
	disputes int

	// state is the state of the inspection. There is one at a time.
	state inspectionState
	// wanted is true if an inspection is needed whose status is read after the mark after.
	// hinted is true if a hint is the reason.
	wanted, hinted bool
	after          runtime.Mark
	// again is true if the pod is to be inspected once more after a while; see
	// records.inspected.
	again bool
	// waiting has the events that wait for the inspection that is wanted, inFlight those
	// that wait for the one under way.
	waiting, inFlight []Event
	// failures counts the inspections that have failed since the last success.
	failures int
}

// inspectionState is the state of the inspection of a pod.
type inspectionState int

const (
	idle       inspectionState = iota
	requested                  // it is in the queue
	inspecting                 // it is under way
)

// want requires an inspection whose status is read after the mark. records.inspect
// requests it.
func (r *record) want(mark runtime.Mark) {
	r.wanted = true
	r.after = max(r.after, mark)
}

// await adds events of a list, which wait for an inspection. mark was drawn after the
// list call.
func (r *record) await(events []Event, mark runtime.Mark) {
	if len(events) == 0 {
		return
	}
	if r.waiting == nil {
		r.waiting = events
	} else {
		r.waiting = merge(r.waiting, events)
	}
	r.want(mark)
}

// beginInspection records the beginning of the inspection that was requested. It returns
// the mark after which the status must be read, or false if the inspection is no longer
// wanted.
func (r *record) beginInspection() (after runtime.Mark, wanted bool) {
	if !r.wanted {
		r.state = idle
		return 0, false
	}
	r.wanted, r.state = false, inspecting
	r.inFlight, r.waiting = r.waiting, nil
	return r.after, true
}

// inspectionFailed records a failed inspection. Its events wait for the next one, which
// the next relist or records.retry requests.
func (r *record) inspectionFailed() {
	r.state = idle
	r.failures++
	r.waiting = merge(r.inFlight, r.waiting)
	r.inFlight = nil
	r.wanted = true
}

// forgetRemoved drops the removals if no view can contradict them any more: while no
// inspection is under way, all that is read from now on is newer.
func (r *record) forgetRemoved() {
	if r.state == idle {
		r.removed = nil
	}
}
