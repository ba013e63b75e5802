package pleg

import (
	"context"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// slotTimeout is how long an inspection occupies a slot at most. Healthy runtimes
	// answer in milliseconds.
	slotTimeout = time.Second
	// stallTimeout is the time after which a relist is made to see whether the runtime
	// hangs: inspections are under way, and none has ended for that time.
	stallTimeout = time.Second
)

// inspections are the inspections that are requested or under way. They begin in the
// order of the requests when there is a slot. An inspection that takes longer than
// slotTimeout goes on without a slot, so that hung pods do not delay others.
type inspections struct {
	// limit is the number of slots.
	limit int
	// queue has the pods whose inspection is requested.
	queue []*podState
	// used is the number of slots in use.
	used int
	// recent has the inspections under way in the order of their beginning. The first one
	// has a slot: inspections before it were removed.
	recent []*inspection
	// stalledAt is when stallTimeout ends, zero if it does not run. It begins with a first
	// inspection, and again with the end of each one while others have slots.
	stalledAt time.Time
}

// inspection is one inspection under way, or its result.
type inspection struct {
	pod   *podState
	ref   runtime.PodRef
	after runtime.Mark
	began time.Time
	// slot is true while the inspection occupies a slot.
	slot bool

	status *runtime.PodStatus
	err    error
}

// startInspections starts the inspections that there are slots for.
func (g *generator) startInspections(ctx context.Context, now time.Time) {
	for i := g.podStates.inspections.next(now); i != nil; i = g.podStates.inspections.next(now) {
		g.tasks.Go(func() {
			ictx, cancel := context.WithTimeout(ctx, g.opts.InspectTimeout)
			defer cancel()
			i.status, i.err = g.cache.Newer(ictx, i.ref, i.after)
			select {
			case g.inspected <- i:
			case <-ctx.Done():
			}
		})
	}
}

// finishInspection handles the result of an inspection.
func (g *generator) finishInspection(i *inspection) {
	now := time.Now()
	g.podStates.inspections.ended(i, now)
	if i.err == nil {
		useful, again := g.podStates.inspected(i.pod, append(g.cache.Seen(i.ref.UID), i.status))
		if useful {
			g.schedule.usefulHint()
		}
		if again {
			g.retrySoon(now)
		}
		return
	}
	i.pod.inspectionFailed()
	log := g.opts.Logger.WithValues("pod", i.pod.ref, "failures", i.pod.failures)
	if i.pod.failures == 1 {
		log.Error(i.err, "Cannot inspect a pod that has changed; its events wait until that succeeds")
		g.schedule.relistSoon() // the runtime may hang, not only the pod
	} else {
		log.V(4).Info("Still cannot inspect a pod that has changed", "err", i.err)
	}
	if g.schedule.stretched() {
		g.retrySoon(now)
	}
}

// request requests an inspection of the pod.
func (in *inspections) request(r *podState) { in.queue = append(in.queue, r) }

// next returns the inspection that is to begin now, nil if there is none.
func (in *inspections) next(now time.Time) *inspection {
	if len(in.queue) == 0 {
		return nil
	}
	in.expire(now)
	for len(in.queue) > 0 && in.used < in.limit {
		r := in.queue[0]
		in.queue[0] = nil
		in.queue = in.queue[1:]
		after, wanted := r.beginInspection()
		if !wanted {
			continue
		}
		i := &inspection{pod: r, ref: r.ref, after: after, began: now, slot: true}
		in.used++
		in.recent = append(in.recent, i)
		if in.stalledAt.IsZero() {
			in.stalledAt = now.Add(stallTimeout)
		}
		return i
	}
	if len(in.queue) == 0 {
		in.queue = nil
	}
	return nil
}

// slotAt returns when a slot becomes free for the first request in the queue, if no
// inspection ends before; zero if the queue is empty.
func (in *inspections) slotAt() time.Time {
	if len(in.queue) == 0 {
		return time.Time{}
	}
	return in.recent[0].began.Add(slotTimeout) // all slots are in use, so recent is not empty
}

// ended records the end of an inspection.
func (in *inspections) ended(i *inspection, now time.Time) {
	in.release(i)
	in.trim()
	in.stalledAt = time.Time{}
	if in.used > 0 { // the others may still be stalled
		in.stalledAt = now.Add(stallTimeout)
	}
}

// expire frees the slots of the inspections that have had them for slotTimeout.
func (in *inspections) expire(now time.Time) {
	for _, i := range in.recent {
		if now.Sub(i.began) < slotTimeout {
			break
		}
		in.release(i)
	}
	in.trim()
}

// release frees the slot of an inspection.
func (in *inspections) release(i *inspection) {
	if i.slot {
		i.slot = false
		in.used--
	}
}

// trim removes the first inspections that have no slot from recent.
func (in *inspections) trim() {
	for len(in.recent) > 0 && !in.recent[0].slot {
		in.recent[0] = nil
		in.recent = in.recent[1:]
	}
	if len(in.recent) == 0 {
		in.recent = nil
	}
}
