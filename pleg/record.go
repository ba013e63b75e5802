package pleg

import "github.com/kubeletkit/kubeletkit/runtime"

// record is what is known of one pod.
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
	// overlap is the number of the list call during which a status has changed view last,
	// 0 if there was none; see records.overlapped.
	overlap uint64
	// removed are the removals that the latest views showed. IDs are not used twice, so a
	// view that shows one of these and is not known to be newer is older.
	removed []Event
	// disputes counts the relists in a row that have contradicted a status without having
	// changed themselves.
	disputes int

	// state is that of the inspection. There is one at a time.
	state inspectionState
	// wanted says that an inspection is needed whose status is read after the mark, hinted
	// that a hint is the reason.
	wanted, hinted bool
	after          runtime.Mark
	// again says that the pod is to be inspected once more in a while; see
	// records.inspected.
	again bool
	// waiting events wait for the inspection that is wanted, those in flight for the one
	// under way.
	waiting, inFlight []Event
	// failures counts the inspections that have failed since the last success.
	failures int
}

// inspectionState is how far the inspection of a pod is.
type inspectionState int

const (
	idle       inspectionState = iota
	requested                  // it is in the queue
	inspecting                 // it is under way
)

// want has the pod inspected with a status that is read after the mark.
func (r *record) want(mark runtime.Mark) {
	r.wanted = true
	r.after = max(r.after, mark)
}

// await adds events of a list that wait for an inspection; mark was drawn after the list
// was read.
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

// beginInspection takes in the beginning of the inspection that was requested. It returns
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

// inspectionFailed takes in a failed inspection. Its events wait for the next one, which
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
