package pleg

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// hint takes in a hint about a pod. known are the statuses of the pod that have not
// been compared yet, in the order in which they were read. If they, or what was seen
// before, show what has happened, the pod need not be read for it.
func (rs *records) hint(h hinted, known []*runtime.PodStatus) outcome {
	var out outcome
	r := rs.pods[h.Pod.UID]
	if r == nil {
		r = rs.add(h.Pod)
	} else if r.ref.Name == "" {
		r.ref = h.Pod // the hint before this one did not say
	}
	for _, status := range known {
		found := rs.compare(r, status)
		out.hit = out.hit || len(found) > 0
		out.hand(r.ref, found)
	}
	if !shows(r.view, h.Hint) || slices.ContainsFunc(h.more, func(m runtime.Hint) bool { return !shows(r.view, m) }) {
		r.hinted, r.recheck = true, false
		r.want(h.mark)
	} else if !r.wanted && !r.busy {
		r.hinted = false // what was expected is known
	}
	r.inspect(&out)
	return out
}

// shows reports whether a view of the pod shows that what the hint says has happened.
// It cannot tell what is gone from what it was too early for, so nothing shows that
// something was deleted.
func shows(view *runtime.Pod, h runtime.Hint) bool {
	if view == nil || h.ID == "" {
		return false
	}
	for i := range view.Containers {
		if c := &view.Containers[i]; c.ID.ID == h.ID {
			switch h.Event {
			case runtime.HintCreated:
				return true
			case runtime.HintStarted:
				return c.State == runtime.ContainerRunning || c.State == runtime.ContainerExited
			case runtime.HintStopped:
				return c.State == runtime.ContainerExited
			}
			return false
		}
	}
	for i := range view.Sandboxes {
		if s := &view.Sandboxes[i]; s.ID == h.ID {
			switch h.Event {
			case runtime.HintCreated:
				return true
			case runtime.HintStarted: // one that is not ready may be so not yet, or no more
				return s.State == runtime.SandboxReady
			case runtime.HintStopped:
				return s.State == runtime.SandboxNotReady
			}
			return false
		}
	}
	return false
}

// owners returns the pods that have, or had at the last relist, a container or a
// sandbox with one of the IDs, and removes from the set what it has found. What it
// costs depends on the records, not on the number of IDs.
func (rs *records) owners(ids map[string]struct{}) []runtime.PodRef {
	var refs []runtime.PodRef
	for _, r := range rs.pods {
		found := false
		for _, pod := range []*runtime.Pod{r.view, r.listed} {
			if pod == nil {
				continue
			}
			for i := range pod.Sandboxes {
				found = take(ids, pod.Sandboxes[i].ID) || found
			}
			for i := range pod.Containers {
				found = take(ids, pod.Containers[i].ID.ID) || found
			}
		}
		if found {
			refs = append(refs, r.ref)
		}
	}
	return refs
}

func take(ids map[string]struct{}, id string) bool {
	_, found := ids[id]
	delete(ids, id)
	return found
}
