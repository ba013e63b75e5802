package pleg

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// records is what a generator remembers of the runtime: values and decisions,
// without goroutines and calls. It belongs to one goroutine.
//
// Lists and statuses are views of a pod, and each is compared with the one before
// it; the differences are the events. Events that a list shows are pending until an
// inspection of their pod begins, and flying until it ends; then they are ready for
// the reader, or pending again if it failed. Events that a status shows are ready at
// once, since the cache has that status.
type records struct {
	pods map[types.UID]*record
	// round counts the relists that succeeded; see record.round.
	round uint64
	// calls counts the list calls, and listing says that one is under way.
	calls   uint64
	listing bool
	// ended was drawn when the last list call that succeeded had returned.
	ended runtime.Mark
	// counts are those of all views.
	counts Counts
}

// record is what is remembered of one pod.
type record struct {
	ref runtime.PodRef
	// view is the pod as it was seen last, by whatever means, nil if it was seen no
	// more. Everything that differs between two values of view has become an event.
	view *runtime.Pod
	// listed is the pod as the last relist saw it, nil if that saw it no more.
	listed *runtime.Pod
	// round is the last relist that the pod was in.
	round uint64
	// read is the mark of the newest status that was compared with view.
	read runtime.Mark
	// turned is the list call during which a status has changed view, 0 if there was
	// none. Nobody knows which of the two is newer.
	turned uint64
	// gone has the removals that the latest views showed. IDs are not used twice, so a
	// view that shows one of these and is not known to be newer is older.
	gone []Event

	// wanted says that an inspection is needed whose status is read after mark;
	// hinted, that somebody outside has asked for it.
	wanted, hinted bool
	mark           runtime.Mark
	// recheck says that the pod is to be looked at again in a while; see landed.
	recheck bool
	// pending events wait for that inspection, flying events for the one under way.
	pending, flying []Event
	// busy says that an inspection is asked for, and away that it is under way. There is
	// one at most.
	busy, away bool
	// failures counts the inspections that failed since the last success.
	failures int
	// disputes counts the relists in a row that refuted a status without having
	// changed themselves.
	disputes int
}

// maxDisputes is how often in a row a list may refute what the runtime says when
// asked about a pod. A runtime that lists a pod in one way and describes it in
// another would otherwise have it inspected, and synced, at each relist forever.
const maxDisputes = 5

// window is when a relist saw the runtime: after the mark began was drawn, and
// before the mark ended was.
//
// A status that is read while the list call is under way may be older or newer than
// the list. So two marks are needed, to be right in both directions: only a status
// read after ended is sure to show what the list shows, and only one read before
// began is sure not to know better.
type window struct {
	began, ended runtime.Mark
}

// outcome is what a change to the records asks the shell to do.
type outcome struct {
	// ready are events to hand to the reader, in order.
	ready []PodEvents
	// inspect are records whose pods are to be inspected; they are marked busy.
	inspect []*record
	// disputed are pods that were just found to exceed maxDisputes.
	disputed []runtime.PodRef
	// unheard are pods that a relist found changed while no hint about them was being
	// looked into.
	unheard []runtime.PodRef
	// hit says that a hint has led to a change, recheck that a pod is to be looked at
	// again after a while, by again.
	hit, recheck bool
}

// hand has events given to the reader, if there are any.
func (o *outcome) hand(ref runtime.PodRef, events []Event) {
	if len(events) > 0 {
		o.ready = append(o.ready, PodEvents{Pod: ref, Events: events})
	}
}

// begin notes that a list call begins. known are the statuses that were read into
// the cache and have not been compared yet, those of one pod in the order in which
// they were read; they had been read when the call began.
func (rs *records) begin(known []*runtime.PodStatus) outcome {
	var out outcome
	for _, status := range known {
		r := rs.pods[status.UID]
		if r == nil {
			if len(status.Sandboxes) == 0 && len(status.Containers) == 0 {
				continue
			}
			r = rs.add(status.PodRef)
		}
		out.hand(r.ref, rs.compare(r, status))
	}
	rs.calls++
	rs.listing = true
	return out
}

// unlisted notes that the list call has failed.
func (rs *records) unlisted() { rs.listing = false }

// relisted takes in what the list call saw. forget is [Cache.ForgetUntil].
//
// It allocates nothing for pods that are as they were.
func (rs *records) relisted(pods []*runtime.Pod, w window, forget func(types.UID, runtime.Mark) bool) outcome {
	rs.round++
	rs.listing, rs.ended = false, w.ended
	var out outcome
	seen := 0
	for _, pod := range pods {
		r := rs.pods[pod.UID]
		if r == nil {
			r = rs.add(pod.PodRef)
		} else if r.round == rs.round { // listed twice: the first counts
			continue
		}
		seen++
		r.round = rs.round
		r.ref = pod.PodRef
		rs.list(r, pod, &out)
		r.inspect(&out)
	}
	if seen == len(rs.pods) {
		return out
	}
	for uid, r := range rs.pods {
		if r.round != rs.round && rs.unlist(r, w, forget, &out) {
			delete(rs.pods, uid)
		}
	}
	return out
}

// list compares a record with the pod as the list shows it.
func (rs *records) list(r *record, pod *runtime.Pod, out *outcome) {
	before := r.listed
	r.listed = pod
	events := diff(r.view, pod)
	if len(events) == 0 {
		r.view = pod
		r.settle()
		return
	}
	if rs.unsure(r) {
		r.note(rs.turn(r, join(r.view, pod, r.gone)), rs.ended)
		r.want(rs.ended)
		return
	}
	if r.view != before && len(diff(before, pod)) == 0 {
		// The list says what it said before; it is a status that says otherwise.
		r.disputes++
		if r.disputes == maxDisputes+1 {
			out.disputed = append(out.disputed, r.ref)
		}
		if r.disputes > maxDisputes {
			return
		}
	} else {
		r.disputes = 0
		out.found(r)
	}
	r.settle()
	r.gone = appendRemovals(r.gone, events)
	r.note(rs.turn(r, pod), rs.ended)
}

// unlist compares a record with a list that does not show the pod, and reports
// whether the record is no longer needed.
func (rs *records) unlist(r *record, w window, forget func(types.UID, runtime.Mark) bool, out *outcome) bool {
	r.listed = nil
	if rs.unsure(r) && r.view != nil {
		r.want(w.ended)
		r.inspect(out)
		return false
	}
	asked := r.wanted && r.mark > w.began
	if events := rs.turn(r, nil); len(events) > 0 {
		out.found(r)
		r.gone = appendRemovals(r.gone, events)
		r.note(events, w.ended)
	}
	if asked || !forget(r.ref.UID, w.began) {
		// Somebody has asked for the pod, or read it, meanwhile, perhaps because it is
		// there again.
		r.want(w.ended)
		r.inspect(out)
		return false
	}
	// There is nothing to inspect any more: the end of the pod need not wait for an
	// inspection, and the record only for one that is under way.
	out.hand(r.ref, merge(r.flying, r.pending))
	r.flying, r.pending, r.gone = nil, nil, nil
	r.wanted, r.hinted, r.recheck = false, false, false
	return !r.away
}

// again asks for the inspections that failed, and for those of pods that are to be
// looked at again; mark is drawn now.
func (rs *records) again(mark runtime.Mark) outcome {
	var out outcome
	for _, r := range rs.pods {
		if r.recheck {
			r.recheck = false
			r.want(mark)
		}
		r.inspect(&out)
	}
	return out
}

// landed takes in a successful inspection. statuses are what was read of the pod and
// has not been compared yet, in the order in which it was read, with the status of
// the inspection at the end.
func (rs *records) landed(r *record, statuses []*runtime.PodStatus) outcome {
	var out outcome
	r.busy, r.away, r.failures = false, false, 0
	events := r.flying
	r.flying = nil
	var newest runtime.Mark
	for _, status := range statuses {
		newest = max(newest, status.Mark)
	}
	hinted := r.hinted
	if newest > r.mark {
		events = merge(events, r.pending)
		r.pending, r.wanted, r.hinted = nil, false, false
	}
	for _, status := range statuses {
		found := rs.compare(r, status)
		out.hit = out.hit || hinted && len(found) > 0
		events = merge(events, found)
	}
	out.hand(r.ref, events)
	r.inspect(&out)
	switch {
	case r.busy || r.view == nil && r.listed != nil: // the next relist drops it
	case r.view == nil && !rs.listing:
		delete(rs.pods, r.ref.UID)
	case hinted && r.view != nil && !r.view.Running():
		// containerd sends the last event of a pod before it lets go of the sandbox, so
		// the inspection may still have shown it, and no other event follows.
		r.recheck, out.recheck = true, true
	}
	return out
}

// compare takes in a status and returns what it shows that view did not.
func (rs *records) compare(r *record, status *runtime.PodStatus) []Event {
	if status.Mark <= r.read {
		return nil // it has been compared, or one that is newer
	}
	r.read = status.Mark
	if r.listed != nil && agree(status, r.listed) {
		r.disputes = 0
	}
	newer := status.Mark > rs.ended
	if newer && !rs.listing {
		r.gone = nil
	}
	if agree(status, r.view) {
		return nil
	}
	next := listing(status)
	if !newer {
		next = join(r.view, next, r.gone)
		r.want(rs.ended)
	}
	events := rs.turn(r, next)
	if rs.listing {
		r.turned = rs.calls
		r.gone = appendRemovals(r.gone, events)
	}
	return events
}

// unsure reports whether nobody knows which is newer, view or the list that has
// just come.
func (rs *records) unsure(r *record) bool { return r.turned == rs.calls && rs.calls > 0 }

func (rs *records) add(ref runtime.PodRef) *record {
	r := &record{ref: ref}
	if rs.pods == nil {
		rs.pods = map[types.UID]*record{}
	}
	rs.pods[ref.UID] = r
	return r
}

// turn replaces the view of a pod, and returns what has changed with it.
func (rs *records) turn(r *record, next *runtime.Pod) []Event {
	events := diff(r.view, next)
	if next != nil && len(next.Sandboxes) == 0 && len(next.Containers) == 0 {
		next = nil
	}
	rs.counts.add(r.view, -1)
	rs.counts.add(next, 1)
	r.view = next
	return events
}

// settle forgets the removals that no view can contradict any more: with no
// inspection under way, all that is read from now on is newer.
func (r *record) settle() {
	if !r.busy {
		r.gone = nil
	}
}

// note adds what a relist has found; mark was drawn when it had.
func (r *record) note(events []Event, mark runtime.Mark) {
	if len(events) == 0 {
		return
	}
	if r.pending == nil {
		r.pending = events
	} else {
		r.pending = merge(r.pending, events)
	}
	r.want(mark)
}

// want asks for a status that is read after the mark.
func (r *record) want(mark runtime.Mark) {
	r.wanted = true
	r.mark = max(r.mark, mark)
}

// inspect asks for an inspection if one is wanted.
func (r *record) inspect(out *outcome) {
	if r.wanted && !r.busy {
		r.busy = true
		out.inspect = append(out.inspect, r)
	}
}

// found notes that a relist has found a change.
func (o *outcome) found(r *record) {
	if !r.hinted && !r.recheck {
		o.unheard = append(o.unheard, r.ref)
	}
}

// takeOff marks the beginning of the inspection that was asked for. It returns
// the mark after which the status must be read; false means that the inspection
// is no longer wanted.
func (r *record) takeOff() (runtime.Mark, bool) {
	if !r.wanted {
		r.busy = false
		return 0, false
	}
	r.wanted, r.away = false, true
	r.flying, r.pending = r.pending, nil
	return r.mark, true
}

// failed takes in an inspection that failed: its events are pending again, until
// the next relist or again has it tried anew.
func (r *record) failed() {
	r.busy, r.away = false, false
	r.failures++
	r.pending = merge(r.flying, r.pending)
	r.flying = nil
	r.wanted = true
}
