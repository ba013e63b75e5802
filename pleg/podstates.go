package pleg

import (
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// podStates has the state of each pod. It compares lists and statuses with the states, and
// the results are requests in inspections and events in pending. It makes no calls and
// belongs to one goroutine.
//
// A list or a status shows a view of a pod. The differences from the view before it are
// the events:
//
//   - Events of a list wait for an inspection that begins after the list, because no
//     status in the cache shows them yet. If it fails, they wait for the next one.
//   - Events of a status are ready for the reader at once: the cache has the status.
type podStates struct {
	pods        map[types.UID]*podState
	inspections inspections
	pending     pendingPods

	// relists counts the relists that succeeded, calls counts all list calls. listing is
	// whether one is under way.
	relists, calls uint64
	listing        bool
	// listEnd was drawn when the last list call that succeeded had returned.
	listEnd runtime.Mark
	// counts are those of all views.
	counts Counts
	// log receives the events when they are ready.
	log logr.Logger
	// record receives the events, when they are found in a status.
	record runtime.RecordFunc
}

// window is the time of a list call: began was drawn before it, ended after it.
//
// A status that was read in between may be older or newer than the list. A status that
// was read after ended is not older. A status that was read before began is not newer.
type window struct {
	began, ended runtime.Mark
}

// beginRelist records the beginning of a list call. known has the statuses in the cache
// that have not been compared yet, those of one pod in the order of their reads. All
// reads ended before the call began.
func (rs *podStates) beginRelist(known []*runtime.PodStatus) {
	for _, status := range known {
		r := rs.pods[status.UID]
		if r == nil {
			if len(status.Sandboxes) == 0 && len(status.Containers) == 0 {
				continue
			}
			r = rs.add(status.PodRef)
		}
		rs.publish(r, rs.seen(r, status, runtime.SourceInspection))
	}
	rs.calls++
	rs.listing = true
}

// relistFailed records the failure of the list call.
func (rs *podStates) relistFailed() { rs.listing = false }

// relisted compares the result of the list call. forget is [runtime.StatusCache].ForgetUntil. unreported
// are the pods that have changed while no hint about them was being handled.
//
// It allocates nothing for pods that have not changed.
func (rs *podStates) relisted(pods []*runtime.Pod, w window,
	forget func(types.UID, runtime.Mark) bool) (unreported []runtime.PodRef) {
	rs.relists++
	rs.listing, rs.listEnd = false, w.ended
	listed := 0
	for _, pod := range pods {
		r := rs.pods[pod.UID]
		if r == nil {
			r = rs.add(pod.PodRef)
		} else if r.relist == rs.relists { // listed twice: the first counts
			continue
		}
		listed++
		r.relist = rs.relists
		r.ref = pod.PodRef
		if changed := rs.compareListed(r, pod); changed && r.hint == unhinted {
			unreported = append(unreported, r.ref)
		}
		rs.resume(r)
	}
	if listed == len(rs.pods) {
		return unreported
	}
	for uid, r := range rs.pods {
		if r.relist == rs.relists {
			continue
		}
		wasHinted := r.hint != unhinted
		changed, drop := rs.compareUnlisted(r, w, forget)
		if changed && !wasHinted {
			unreported = append(unreported, r.ref)
		}
		if drop {
			delete(rs.pods, uid)
		}
	}
	return unreported
}

// compareListed compares the state of a pod with the pod in the list. changed reports whether the
// pod has changed since the list before.
func (rs *podStates) compareListed(r *podState, pod *runtime.Pod) (changed bool) {
	before := r.listed
	r.listed = pod
	events := diff(r.view, pod)
	if len(events) == 0 {
		r.view = pod
		r.forgetRemoved()
		return false
	}
	if rs.overlapped(r) {
		next := join(r.view, pod, r.removed)
		rs.await(r, diff(r.view, next), rs.listEnd)
		rs.setView(r, next)
		rs.want(r, rs.listEnd)
		return false
	}
	// If the list shows the pod as before, the change is that of a status in between.
	changed = r.view == before || len(diff(before, pod)) > 0
	r.forgetRemoved()
	r.removed = r.removed.with(events)
	rs.setView(r, pod)
	rs.await(r, events, rs.listEnd)
	return changed
}

// compareUnlisted handles a pod that the list does not have. changed reports whether it
// has changed, drop whether the state is no longer needed.
func (rs *podStates) compareUnlisted(r *podState, w window,
	forget func(types.UID, runtime.Mark) bool) (changed, drop bool) {
	r.listed = nil
	if rs.overlapped(r) && r.view != nil {
		rs.want(r, w.ended)
		return false, false
	}
	hintedMeanwhile := r.wanted() && r.after > w.began
	events := diff(r.view, nil)
	rs.setView(r, nil)
	r.removed = r.removed.with(events)
	r.waiting = merge(r.waiting, events)
	if hintedMeanwhile || !forget(r.ref.UID, w.began) {
		// The pod may exist again: there was a hint, or it was read.
		rs.want(r, w.ended)
		return len(events) > 0, false
	}
	// There is nothing left to inspect, so the last events are ready. The state is needed
	// only while an inspection is under way.
	last := merge(r.inFlight, r.waiting)
	recordEvents(rs.record, r.ref, last, nil, runtime.SourceRelist)
	rs.publish(r, last)
	r.inFlight, r.waiting, r.removed, r.hint = nil, nil, nil, unhinted
	if r.underWay() {
		r.state = inspecting
		return len(events) > 0, false
	}
	r.state = idle
	return len(events) > 0, true
}

// hinted handles hints about a pod. known has the statuses of the pod in the cache that
// have not been compared yet, in the order of their reads. If the view then shows what the
// hints are about, the pod is not inspected. useful reports whether these statuses showed
// a change.
func (rs *podStates) hinted(h podHints, known []*runtime.PodStatus) (useful bool) {
	r := rs.pods[h.pod.UID]
	if r == nil {
		r = rs.add(h.pod)
	} else if r.ref.Name == "" {
		r.ref = h.pod // earlier hints did not have the name
	}
	for _, status := range known {
		events := rs.seen(r, status, runtime.SourceInspection)
		useful = useful || len(events) > 0
		rs.publish(r, events)
	}
	if !h.shownBy(r.view) {
		r.hint = hinted
		rs.want(r, h.mark)
	} else if r.state == idle && r.hint == hinted {
		r.hint = unhinted
	}
	rs.resume(r)
	return useful
}

// owners returns the pods that have a container or a sandbox with one of the IDs, now or
// at the last relist. It removes the IDs that it finds from the set.
func (rs *podStates) owners(ids map[string]struct{}) []runtime.PodRef {
	var owners []runtime.PodRef
	remove := func(id string) bool {
		_, found := ids[id]
		delete(ids, id)
		return found
	}
	for _, r := range rs.pods {
		owns := false
		for _, pod := range []*runtime.Pod{r.view, r.listed} {
			if pod == nil {
				continue
			}
			for i := range pod.Sandboxes {
				owns = remove(pod.Sandboxes[i].ID) || owns
			}
			for i := range pod.Containers {
				owns = remove(pod.Containers[i].ID.ID) || owns
			}
		}
		if owns {
			owners = append(owners, r.ref)
		}
	}
	return owners
}

// inspected handles a successful inspection. statuses has the statuses of the pod that
// have not been compared yet, in the order of their reads; the last is the one of the
// inspection. useful reports whether a hint has led to a change. again reports whether
// retry must be called for this pod after a while.
func (rs *podStates) inspected(r *podState, statuses []*runtime.PodStatus) (useful, again bool) {
	wasHinted, events := r.hint == hinted, r.inFlight
	r.failures, r.inFlight = 0, nil
	var newest runtime.Mark
	for _, status := range statuses {
		newest = max(newest, status.Mark)
	}
	old := r.state == outdated && newest <= r.after
	if r.state = idle; old {
		rs.want(r, r.after)
	} else {
		events = merge(events, r.waiting)
		r.waiting = nil
		if wasHinted {
			r.hint = unhinted
		}
	}
	last := statuses[len(statuses)-1]
	recordEvents(rs.record, r.ref, events, last, runtime.SourceRelist)
	for _, status := range statuses {
		source := runtime.SourceInspection
		if wasHinted && status.Mark == last.Mark {
			source = runtime.SourceEvent
		}
		shown := rs.seen(r, status, source)
		useful = useful || wasHinted && len(shown) > 0
		events = merge(events, shown)
	}
	rs.publish(r, events)
	switch {
	case r.state != idle || r.view == nil && r.listed != nil: // the next relist drops it
	case r.view == nil && !rs.listing:
		delete(rs.pods, r.ref.UID)
	case wasHinted && r.view != nil && !r.view.Running():
		// containerd sends the last event of a pod before it removes the sandbox, so this
		// inspection may still have shown the sandbox, and no other event follows.
		r.hint, again = settling, true
	}
	return useful, again
}

// retry requests the inspections that failed, and those of pods that are settling; mark is
// drawn now.
func (rs *podStates) retry(mark runtime.Mark) {
	for _, r := range rs.pods {
		if r.hint == settling {
			r.hint = unhinted
			rs.want(r, mark)
		}
		rs.resume(r)
	}
}

// seen is compareStatus, and records the events.
func (rs *podStates) seen(r *podState, status *runtime.PodStatus, source runtime.RecordSource) []Event {
	events := rs.compareStatus(r, status)
	recordEvents(rs.record, r.ref, events, status, source)
	return events
}

// compareStatus compares a status with the view of its pod, which it replaces, and returns
// the events.
func (rs *podStates) compareStatus(r *podState, status *runtime.PodStatus) []Event {
	if status.Mark <= r.compared {
		return nil // this one or a newer one was compared
	}
	r.compared = status.Mark
	newer := status.Mark > rs.listEnd
	if newer && !rs.listing {
		r.removed = nil
	}
	next := viewOf(status)
	events := diff(r.view, next)
	if len(events) == 0 {
		return nil
	}
	if !newer {
		next = join(r.view, next, r.removed)
		events = diff(r.view, next)
		rs.want(r, rs.listEnd)
	}
	rs.setView(r, next)
	if rs.listing {
		r.overlap = rs.calls
		r.removed = r.removed.with(events)
	}
	return events
}

// overlapped reports whether a status has changed the view during the list call that has
// just returned. Then it is not certain which of the two is newer.
func (rs *podStates) overlapped(r *podState) bool { return r.overlap == rs.calls && rs.calls > 0 }

func (rs *podStates) add(ref runtime.PodRef) *podState {
	r := &podState{ref: ref}
	if rs.pods == nil {
		rs.pods = map[types.UID]*podState{}
	}
	rs.pods[ref.UID] = r
	return r
}

// setView replaces the view of a pod.
func (rs *podStates) setView(r *podState, next *runtime.Pod) {
	if next != nil && len(next.Sandboxes) == 0 && len(next.Containers) == 0 {
		next = nil
	}
	rs.counts.add(r.view, -1)
	rs.counts.add(next, 1)
	r.view = next
}

// want requests an inspection whose status is read after the mark.
func (rs *podStates) want(r *podState, mark runtime.Mark) {
	r.after = max(r.after, mark)
	switch r.state {
	case idle, failed:
		r.state = queued
		rs.inspections.request(r)
	case inspecting:
		r.state = outdated
	}
}

// resume requests the inspection if it has failed.
func (rs *podStates) resume(r *podState) {
	if r.state == failed {
		rs.want(r, r.after)
	}
}

// await adds events of a list, which wait for an inspection. mark was drawn after the
// list call.
func (rs *podStates) await(r *podState, events []Event, mark runtime.Mark) {
	if len(events) > 0 {
		r.waiting = merge(r.waiting, events)
		rs.want(r, mark)
	}
}

// publish makes events ready for the reader.
func (rs *podStates) publish(r *podState, events []Event) {
	if len(events) > 0 && rs.log.Enabled() {
		rs.log.Info("Pod has changed", "pod", r.ref, "events", events)
	}
	rs.pending.add(r.ref, events)
}
