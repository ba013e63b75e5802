package pleg

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// records is what a generator remembers of the runtime between relists: values
// and decisions, without goroutines and calls. It belongs to one goroutine.
//
// The life of an event: a relist finds it and it is pending; an inspection of its
// pod begins and it is flying; the inspection succeeds and it is ready for the
// reader, or fails and it is pending again.
type records struct {
	pods map[types.UID]*record
	// round counts relists; see record.round.
	round uint64
}

// record is what is remembered of one pod.
type record struct {
	ref runtime.PodRef
	// listed is the pod as the last relist saw it, nil if that saw it no more.
	// Everything that differs between two values of listed has become an event.
	listed *runtime.Pod
	// round is the last relist that the pod was in.
	round uint64
	// pending events wait for an inspection that begins after mark, which was drawn
	// when the relist that found the last of them had returned.
	pending []Event
	mark    runtime.Mark
	// flying events wait for the inspection that is under way.
	flying []Event
	// busy says that an inspection is asked for or under way. There is one at most.
	busy bool
	// failures counts the inspections that failed since the last success.
	failures int
	// disputes counts the relists in a row, none of which found a change, whose list
	// a status did not agree with; disputed is the last relist that counts.
	disputes int
	disputed uint64
}

// maxDisputes is how often in a row a list may refute what the runtime says when
// asked about a pod. A runtime that lists a pod in one way and describes it in
// another would otherwise have it inspected, and synced, at each relist forever.
const maxDisputes = 5

// window is when a relist saw the runtime: after the mark began was drawn, and
// before the mark ended was.
//
// A status that a worker reads while the list call is under way may be older or
// newer than the list. So two marks are needed, to be right in both directions:
// only a status read after ended is sure to show what the list shows, and only
// one read before began is sure not to know better.
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
}

// relisted takes in what a relist saw. known are statuses that were read into
// the cache since the relist before, and before the list call of this one began.
// forget is [Cache.ForgetUntil].
//
// It allocates nothing for pods that are as they were.
func (rs *records) relisted(pods []*runtime.Pod, known []*runtime.PodStatus, w window, forget func(types.UID, runtime.Mark) bool) outcome {
	if rs.pods == nil {
		rs.pods = make(map[types.UID]*record, len(pods))
	}
	rs.round++
	var out outcome
	seen := 0
	for _, pod := range pods {
		r := rs.pods[pod.UID]
		switch {
		case r == nil:
			r = &record{}
			rs.pods[pod.UID] = r
		case r.round == rs.round: // listed twice: the first counts
			continue
		}
		seen++
		r.round = rs.round
		r.ref = pod.PodRef
		if events := diff(r.listed, pod); len(events) > 0 {
			r.note(events, w)
			r.disputes = 0
		}
		r.listed = pod
		r.inspect(&out)
	}
	for _, status := range known {
		rs.check(status, w, &out)
	}
	if seen == len(rs.pods) {
		return out
	}
	for uid, r := range rs.pods {
		if r.round == rs.round {
			continue
		}
		r.note(diff(r.listed, nil), w)
		r.listed = nil
		if !forget(uid, w.began) {
			// Somebody has read the pod meanwhile, perhaps because it is there again.
			// Treat it as changed, and look again at the next relist.
			r.inspect(&out)
			continue
		}
		// There is nothing to inspect any more: the end of the pod need not wait for
		// an inspection that is under way, only the record does.
		if events := merge(r.flying, r.pending); len(events) > 0 {
			out.ready = append(out.ready, PodEvents{Pod: r.ref, Events: events})
		}
		r.flying, r.pending = nil, nil
		if !r.busy {
			delete(rs.pods, uid)
		}
	}
	return out
}

// check compares a known status with the list. Others read pods too, so the
// cache may know of a state that passed between two relists, and would keep it
// for the truth if the lists alone were compared; and where a later read has put
// that right, the reader may still have got it.
func (rs *records) check(status *runtime.PodStatus, w window, out *outcome) {
	r := rs.pods[status.UID]
	if r == nil {
		// No relist has ever seen the pod. It gets a record to be dropped with it.
		r = &record{ref: status.PodRef}
		rs.pods[status.UID] = r
	}
	if r.round != rs.round {
		r.note(diff(listing(status), nil), w)
		return // the caller sees to what is gone
	}
	if agree(status, r.listed) {
		r.disputes = 0
		return
	}
	if r.disputed != rs.round { // a relist counts once, also if it refutes two statuses
		r.disputed = rs.round
		r.disputes++
		if r.disputes == maxDisputes+1 {
			out.disputed = append(out.disputed, r.ref)
		}
	}
	if r.disputes <= maxDisputes {
		r.note(diff(listing(status), r.listed), w)
		r.inspect(out)
	}
}

// note adds what a relist has found.
func (r *record) note(events []Event, w window) {
	if len(events) == 0 {
		return
	}
	if r.pending == nil {
		r.pending = events
	} else {
		r.pending = merge(r.pending, events)
	}
	r.mark = w.ended
}

// inspect asks for an inspection if events wait for one.
func (r *record) inspect(out *outcome) {
	if len(r.pending) > 0 && !r.busy {
		r.busy = true
		out.inspect = append(out.inspect, r)
	}
}

// takeOff marks the beginning of the inspection that was asked for. It returns
// the mark after which the status must be read; false means that the inspection
// is no longer wanted.
func (r *record) takeOff() (runtime.Mark, bool) {
	if len(r.pending) == 0 {
		r.busy = false
		return 0, false
	}
	r.flying, r.pending = r.pending, nil
	return r.mark, true
}

// landed takes in a successful inspection, whose status has the given mark.
func (r *record) landed(mark runtime.Mark) outcome {
	r.busy, r.failures = false, 0
	events := r.flying
	r.flying = nil
	if len(r.pending) > 0 && mark > r.mark {
		events, r.pending = merge(events, r.pending), nil
	}
	var out outcome
	if len(events) > 0 {
		out.ready = []PodEvents{{Pod: r.ref, Events: events}}
	}
	r.inspect(&out)
	return out
}

// failed takes in an inspection that failed: its events are pending again, until
// the next relist has it tried anew.
func (r *record) failed() {
	r.busy = false
	r.failures++
	r.pending = merge(r.flying, r.pending)
	r.flying = nil
}
