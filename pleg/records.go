package pleg

import (
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// records has a record of each pod. It compares lists and statuses with the records, and
// the results are requests in inspections and events in pending. It makes no calls and
// belongs to one goroutine.
//
// A list or a status shows a view of a pod. The differences from the view before it are
// the events:
//
//   - Events of a list wait for an inspection that begins after the list, because no
//     status in the cache shows them yet. If it fails, they wait for the next one.
//   - Events of a status are ready for the reader at once: the cache has the status.
type records struct {
	pods        map[types.UID]*record
	inspections inspections
	pending     pendingPods

	// relists counts the relists that succeeded, calls counts all list calls. listing is
	// whether one is under way.
	relists, calls uint64
	listing        bool
	// listed is the number of pods in the last list.
	listed int
	// listEnd was drawn when the last list call that succeeded had returned.
	listEnd runtime.Mark
	// counts are those of all views.
	counts Counts
	// log receives the events when they are ready.
	log logr.Logger
	// record receives the events, when they are found in a status.
	record runtime.RecordFunc
}

// maxDisputes is how many times in a row a list may contradict the status of a pod. If a
// runtime always lists a pod with other states than those of its status, the pod would
// otherwise be inspected, and synced, at each relist for ever.
const maxDisputes = 5

// window is the time of a list call: began was drawn before it, ended after it.
//
// A status that was read in between may be older or newer than the list. A status that
// was read after ended is not older. A status that was read before began is not newer.
type window struct {
	began, ended runtime.Mark
}

// findings are the results of a relist beside requests and events.
type findings struct {
	// unreported are pods that have changed while no hint about them was being handled.
	unreported []runtime.PodRef
	// disputed are pods that have just exceeded maxDisputes.
	disputed []runtime.PodRef
}

// changed notes that a relist has found a change of the pod.
func (f *findings) changed(r *record) {
	if !r.hinted && !r.again {
		f.unreported = append(f.unreported, r.ref)
	}
}

// beginRelist records the beginning of a list call. known has the statuses in the cache
// that have not been compared yet, those of one pod in the order of their reads. All
// reads ended before the call began.
func (rs *records) beginRelist(known []*runtime.PodStatus) {
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
func (rs *records) relistFailed() { rs.listing = false }

// relisted compares the result of the list call. forget is [Cache.ForgetUntil].
//
// It allocates nothing for pods that have not changed.
func (rs *records) relisted(pods []*runtime.Pod, w window, forget func(types.UID, runtime.Mark) bool) (found findings) {
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
		rs.compareListed(r, pod, &found)
		rs.inspect(r)
	}
	rs.listed = listed
	if listed == len(rs.pods) {
		return found
	}
	for uid, r := range rs.pods {
		if r.relist != rs.relists && rs.compareUnlisted(r, w, forget, &found) {
			delete(rs.pods, uid)
		}
	}
	return found
}

// compareListed compares a record with the pod in the list.
func (rs *records) compareListed(r *record, pod *runtime.Pod, found *findings) {
	before := r.listed
	r.listed = pod
	events := diff(r.view, pod)
	if len(events) == 0 {
		r.view = pod
		r.forgetRemoved()
		return
	}
	if rs.overlapped(r) {
		r.await(rs.setView(r, join(r.view, pod, r.removed)), rs.listEnd)
		r.want(rs.listEnd)
		return
	}
	if r.view != before && len(diff(before, pod)) == 0 {
		// The list shows the pod as before, and a status in between showed another view.
		r.disputes++
		if r.disputes == maxDisputes+1 {
			found.disputed = append(found.disputed, r.ref)
		}
		if r.disputes > maxDisputes {
			return
		}
	} else {
		r.disputes = 0
		found.changed(r)
	}
	r.forgetRemoved()
	r.removed = appendRemovals(r.removed, events)
	r.await(rs.setView(r, pod), rs.listEnd)
}

// compareUnlisted handles a pod that the list does not have. drop reports whether the
// record is no longer needed.
func (rs *records) compareUnlisted(r *record, w window, forget func(types.UID, runtime.Mark) bool, found *findings) (drop bool) {
	r.listed = nil
	if rs.overlapped(r) && r.view != nil {
		r.want(w.ended)
		rs.inspect(r)
		return false
	}
	hintedMeanwhile := r.wanted && r.after > w.began
	if events := rs.setView(r, nil); len(events) > 0 {
		found.changed(r)
		r.removed = appendRemovals(r.removed, events)
		r.await(events, w.ended)
	}
	if hintedMeanwhile || !forget(r.ref.UID, w.began) {
		// The pod may exist again: there was a hint, or it was read.
		r.want(w.ended)
		rs.inspect(r)
		return false
	}
	// There is nothing left to inspect, so the last events are ready. The record is needed
	// only while an inspection is under way.
	events := merge(r.inFlight, r.waiting)
	recordEvents(rs.record, r.ref, events, nil, runtime.SourceRelist)
	rs.publish(r, events)
	r.inFlight, r.waiting, r.removed = nil, nil, nil
	r.wanted, r.hinted, r.again = false, false, false
	return r.state != inspecting
}

// takes reports whether a hint about the pod can be handled. A runtime can send hints about
// ever new pods, faster than they can be inspected, so beside those in the last list there is
// room for maxHinted. A relist finds the others.
func (rs *records) takes(uid types.UID) bool {
	return rs.pods[uid] != nil || len(rs.pods) < rs.listed+maxHinted
}

// hinted handles hints about a pod. known has the statuses of the pod in the cache that
// have not been compared yet, in the order of their reads. If the view then shows what the
// hints are about, the pod is not inspected. useful reports whether these statuses showed
// a change.
func (rs *records) hinted(h podHints, known []*runtime.PodStatus) (useful bool) {
	r := rs.pods[h.last.Pod.UID]
	if r == nil {
		r = rs.add(h.last.Pod)
	} else if r.ref.Name == "" {
		r.ref = h.last.Pod // earlier hints did not have the name
	}
	for _, status := range known {
		events := rs.seen(r, status, runtime.SourceInspection)
		useful = useful || len(events) > 0
		rs.publish(r, events)
	}
	if !h.shownBy(r.view) {
		r.hinted, r.again = true, false
		r.want(h.mark)
	} else if !r.wanted && r.state == idle {
		r.hinted = false
	}
	rs.inspect(r)
	return useful
}

// owners returns the pods that have a container or a sandbox with one of the IDs, now or
// at the last relist. It removes the IDs that it finds from the set.
func (rs *records) owners(ids map[string]struct{}) []runtime.PodRef {
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
func (rs *records) inspected(r *record, statuses []*runtime.PodStatus) (useful, again bool) {
	hinted, events := r.hinted, r.inFlight
	r.state, r.failures, r.inFlight = idle, 0, nil
	var newest runtime.Mark
	for _, status := range statuses {
		newest = max(newest, status.Mark)
	}
	if newest > r.after {
		events = merge(events, r.waiting)
		r.waiting, r.wanted, r.hinted = nil, false, false
	}
	last := statuses[len(statuses)-1]
	recordEvents(rs.record, r.ref, events, last, runtime.SourceRelist)
	for _, status := range statuses {
		source := runtime.SourceInspection
		if hinted && status.Mark == last.Mark {
			source = runtime.SourceEvent
		}
		shown := rs.seen(r, status, source)
		useful = useful || hinted && len(shown) > 0
		events = merge(events, shown)
	}
	rs.publish(r, events)
	rs.inspect(r)
	switch {
	case r.state != idle || r.view == nil && r.listed != nil: // the next relist drops it
	case r.view == nil && !rs.listing:
		delete(rs.pods, r.ref.UID)
	case hinted && r.view != nil && !r.view.Running():
		// containerd sends the last event of a pod before it removes the sandbox, so this
		// inspection may still have shown the sandbox, and no other event follows.
		r.again, again = true, true
	}
	return useful, again
}

// retry requests the inspections that failed, and those of pods that are to be inspected
// again; mark is drawn now.
func (rs *records) retry(mark runtime.Mark) {
	for _, r := range rs.pods {
		if r.again {
			r.again = false
			r.want(mark)
		}
		rs.inspect(r)
	}
}

// seen is compareStatus, and records the events.
func (rs *records) seen(r *record, status *runtime.PodStatus, source runtime.RecordSource) []Event {
	events := rs.compareStatus(r, status)
	recordEvents(rs.record, r.ref, events, status, source)
	return events
}

// compareStatus compares a status with the view of its pod, which it replaces, and returns
// the events.
func (rs *records) compareStatus(r *record, status *runtime.PodStatus) []Event {
	if status.Mark <= r.compared {
		return nil // this one or a newer one was compared
	}
	r.compared = status.Mark
	if r.listed != nil && agree(status, r.listed) {
		r.disputes = 0
	}
	newer := status.Mark > rs.listEnd
	if newer && !rs.listing {
		r.removed = nil
	}
	if agree(status, r.view) {
		return nil
	}
	next := viewOf(status)
	if !newer {
		next = join(r.view, next, r.removed)
		r.want(rs.listEnd)
	}
	events := rs.setView(r, next)
	if rs.listing {
		r.overlap = rs.calls
		r.removed = appendRemovals(r.removed, events)
	}
	return events
}

// overlapped reports whether a status has changed the view during the list call that has
// just returned. Then it is not certain which of the two is newer.
func (rs *records) overlapped(r *record) bool { return r.overlap == rs.calls && rs.calls > 0 }

func (rs *records) add(ref runtime.PodRef) *record {
	r := &record{ref: ref}
	if rs.pods == nil {
		rs.pods = map[types.UID]*record{}
	}
	rs.pods[ref.UID] = r
	return r
}

// setView replaces the view of a pod, and returns the differences.
func (rs *records) setView(r *record, next *runtime.Pod) []Event {
	events := diff(r.view, next)
	if next != nil && len(next.Sandboxes) == 0 && len(next.Containers) == 0 {
		next = nil
	}
	rs.counts.add(r.view, -1)
	rs.counts.add(next, 1)
	r.view = next
	return events
}

// inspect requests an inspection if one is wanted.
func (rs *records) inspect(r *record) {
	if r.wanted && r.state == idle {
		r.state = requested
		rs.inspections.request(r)
	}
}

// publish makes events ready for the reader.
func (rs *records) publish(r *record, events []Event) {
	if len(events) > 0 && rs.log.Enabled() {
		rs.log.Info("Pod has changed", "pod", r.ref, "events", events)
	}
	rs.pending.add(r.ref, events)
}
