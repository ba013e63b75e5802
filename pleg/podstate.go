package pleg

import "github.com/kubeletkit/kubeletkit/runtime"

// podState is the state of one pod in the generator.
type podState struct {
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
	// 0 if there was none; see podStates.overlapped.
	overlap uint64
	// removed are the removals between the latest views. IDs are not used twice, so a view
	// that has one of the removed IDs is older, unless it is certain to be newer.
	removed removals

	state inspectionState
	hint  hintState
	// after is the mark after which the status of the inspection must be read.
	after runtime.Mark
	// waiting has the events that wait for the next inspection, inFlight those that wait
	// for the one under way.
	waiting, inFlight []Event
	// failures counts the inspections that have failed since the last success.
	failures int
}

// inspectionState is the state of the inspection of a pod. There is one at a time.
type inspectionState int

const (
	idle       inspectionState = iota
	failed                     // it has failed; the next hint, relist or podStates.retry requests another one
	queued                     // it is requested
	inspecting                 // it is under way
	outdated                   // it is under way, and another one must follow, after the mark
)

// hintState is the state of the hints about a pod.
type hintState int

const (
	unhinted hintState = iota
	hinted             // the inspection has a hint as a reason
	settling           // a hint was handled, and the pod is to be inspected once more; see podStates.inspected
)

// wanted reports whether an inspection is to begin.
func (r *podState) wanted() bool {
	return r.state == failed || r.state == queued || r.state == outdated
}

// underWay reports whether an inspection is under way.
func (r *podState) underWay() bool { return r.state == inspecting || r.state == outdated }

// beginInspection records the beginning of the inspection that was requested. It returns
// the mark after which the status must be read, or false if the inspection is no longer
// wanted.
func (r *podState) beginInspection() (after runtime.Mark, wanted bool) {
	if r.state != queued {
		return 0, false
	}
	r.state = inspecting
	r.inFlight, r.waiting = r.waiting, nil
	return r.after, true
}

// inspectionFailed records a failed inspection. Its events wait for the next one.
func (r *podState) inspectionFailed() {
	r.state = failed
	r.failures++
	r.waiting = merge(r.inFlight, r.waiting)
	r.inFlight = nil
}

// forgetRemoved drops the removals if no view can contradict them any more: while no
// inspection is under way, all that is read from now on is newer.
func (r *podState) forgetRemoved() {
	if !r.underWay() {
		r.removed = nil
	}
}
