package syncloop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Observe implements [Handler]. If the pod is not desired and has no worker, the next
// cleanup sweeps for orphans, unless the events only show that something was removed.
func (h *PodHandler) Observe(ev pleg.PodEvents) {
	h.observed = true
	if needSync(ev) && !h.desired(ev.Pod.UID) && !h.deps.Workers.State(ev.Pod.UID).Known() {
		h.sweep = true
	}
}

// HandlePodCleanups implements [Handler]. It lists the runtime and reads the disk only
// if there may be an orphan, and every 5 minutes, or once a minute if it has received no
// event of the runtime.
func (h *PodHandler) HandlePodCleanups(ctx context.Context) error {
	// What a sweep finds is reported after SyncKnownPods: no pod counts as gone before.
	var swept bool
	var found []runtime.PodRef
	sweep := func(alive func(types.UID) bool) (err error) {
		swept = true
		found, err = h.stopOrphans(ctx, alive)
		return err
	}
	if h.lastSweep.IsZero() {
		// before SyncKnownPods, after which a pod that is not known counts as gone, also an orphan that runs
		if err := sweep(func(uid types.UID) bool {
			return h.deps.Workers.State(uid).Known() ||
				h.desired(uid)
		}); err != nil {
			return err
		}
	}
	admitted := h.admitted()
	var due []runtime.PodRef
	if h.deps.Checkpoint != nil {
		due = h.deps.Checkpoint.DueEnds(h.desired)
		h.deps.Checkpoint.Prune(func(uid types.UID) bool {
			_, refused := h.refused[uid]
			return !refused && h.desired(uid) || h.resumes(uid)
		})
	}
	h.endRemovals()
	states := h.syncWorkers(admitted)
	alive := func(uid types.UID) bool {
		_, known := states[uid]
		return known || h.desired(uid)
	}
	h.reportEnds(states, alive)
	h.count(states)
	h.deps.Status.Recheck()
	h.retryPendingResizes()
	if h.deps.Prober != nil {
		h.deps.Prober.Cleanup(alive)
	}
	h.deps.Status.Prune(alive)

	period := sweepPeriod
	if h.observed {
		period = observedSweepPeriod
	}
	if h.sweep || time.Since(h.lastSweep) >= period {
		if err := sweep(alive); err != nil {
			h.sweep = true
			return err
		}
	}
	for _, ref := range found {
		h.reportEnd(ref)
	}
	if swept && len(h.inRuntime) > 0 {
		h.opts.Gone()
	}
	h.reportDue(due, alive)
	if !h.mayHaveDirs && len(h.removals.failed) == 0 {
		return nil
	}
	err := h.removeGone(ctx, alive)
	h.mayHaveDirs = err != nil
	return err
}

// desired reports whether the pod is desired, which includes refused pods.
func (h *PodHandler) desired(uid types.UID) bool {
	_, ok := h.deps.Pods.ByUID(uid)
	return ok
}

// admitted returns the desired pods that were not refused.
func (h *PodHandler) admitted() []*v1.Pod {
	desired := h.deps.Pods.Pods()
	if len(h.refused) == 0 {
		return desired
	}
	return slices.DeleteFunc(slices.Clone(desired), func(pod *v1.Pod) bool {
		_, refused := h.refused[pod.UID]
		return refused
	})
}

// syncWorkers gives the workers the full list of pods. It admits and starts the pods that the workers
// have forgotten, because an earlier incarnation of the UID has ended, and components have taken back what it had. It
// returns the states of all pods that the workers have a record of.
func (h *PodHandler) syncWorkers(admitted []*v1.Pod) map[types.UID]podworkers.State {
	states := h.deps.Workers.SyncKnownPods(admitted)
	for _, pod := range admitted {
		if _, known := states[pod.UID]; !known {
			if h.starts(pod.UID) && (!isPodActive(pod) || h.admit(pod, h.active([]*v1.Pod{pod}))) {
				h.update(podworkers.Update{Type: podworkers.Create, Pod: pod})
			}
			states[pod.UID] = h.deps.Workers.State(pod.UID)
		}
	}
	return states
}

// reportEnds reports the end of the pods that the workers have forgotten since the last
// cleanup, so that what they left in the runtime is collected. Their directories are
// removed in this cleanup. It brings known up to date.
func (h *PodHandler) reportEnds(states map[types.UID]podworkers.State, alive func(types.UID) bool) {
	ended := false
	for uid, ref := range h.known {
		if _, known := states[uid]; known {
			continue
		}
		delete(h.known, uid)
		if !alive(uid) {
			ended = true
			h.reportEnd(ref)
			h.inRuntime[uid] = true
		}
	}
	if ended {
		h.mayHaveDirs = true
		h.opts.Gone()
	}
	for uid, state := range states {
		if _, known := h.known[uid]; !known {
			h.known[uid] = refOf(uid, state)
		}
	}
}

// reportEnd reports that a pod is gone. The step Gone follows.
func (h *PodHandler) reportEnd(ref runtime.PodRef) {
	if podspec.IsFileName(ref.UID) { // otherwise it was refused, and nothing was made for it
		h.goneDue[ref.UID] = ref
	}
	h.recordEnd(ref)
	h.deps.Status.PodEnded(ref)
	if h.deps.Checkpoint != nil {
		h.reported[ref.UID] = true
	}
}

// reportDue reports those of the due ends that were not reported yet: of pods that an
// earlier agent has ended, or that ended while no agent ran. A pod of an earlier agent that
// still runs is in known after the first sweep.
func (h *PodHandler) reportDue(due []runtime.PodRef, alive func(types.UID) bool) {
	before := h.reported
	h.reported = make(map[types.UID]bool, len(due))
	for _, ref := range due {
		_, working := h.known[ref.UID]
		switch {
		case working || alive(ref.UID):
		case before[ref.UID]:
			h.reported[ref.UID] = true
		default:
			h.reportEnd(ref)
		}
	}
}

// stopOrphans stops running pods that have no worker, including refused ones (kubelet: HandlePodCleanups). It returns
// the pods that are gone and have left something in the runtime, without those whose end was reported already. An
// earlier agent may have ended before it reported the end of the returned pods.
func (h *PodHandler) stopOrphans(ctx context.Context, alive func(types.UID) bool) (found []runtime.PodRef, _ error) {
	lctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	listed, err := runtime.ListPods(lctx, h.deps.Runtime)
	if err != nil {
		return nil, fmt.Errorf("looking for orphaned pods: %w", err)
	}
	inRuntime := map[types.UID]bool{}
	for _, pod := range listed {
		_, working := h.known[pod.UID]
		switch {
		case working:
		case pod.Running():
			why := "no source names it"
			if alive(pod.UID) {
				why = "it was refused"
			}
			h.log.Info("Stopping a pod that is not to run on this node", "pod", pod.PodRef, "why", why)
			h.update(podworkers.Update{Type: podworkers.Kill, Orphan: pod})
		case !alive(pod.UID):
			inRuntime[pod.UID] = true
			if !h.inRuntime[pod.UID] {
				found = append(found, pod.PodRef)
			}
		}
	}
	h.before, h.inRuntime = nil, inRuntime
	h.sweep, h.mayHaveDirs, h.lastSweep = false, true, time.Now()
	return found, nil
}

// refOf returns the reference of the pod with this state.
func refOf(uid types.UID, s podworkers.State) runtime.PodRef {
	name, namespace, _ := strings.Cut(s.FullName, "_") // neither can have an underscore
	return runtime.PodRef{UID: uid, Name: name, Namespace: namespace}
}
