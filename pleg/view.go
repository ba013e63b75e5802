package pleg

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// A view of a pod is a *runtime.Pod: its containers and sandboxes with their states, from
// a list or a status. nil is the view of a pod that does not exist.

// viewOf returns the view that a status shows.
func viewOf(status *runtime.PodStatus) *runtime.Pod {
	pod := &runtime.Pod{
		PodRef:     status.PodRef,
		Sandboxes:  make([]runtime.Sandbox, len(status.Sandboxes)),
		Containers: make([]runtime.Container, len(status.Containers)),
	}
	for i := range status.Sandboxes {
		pod.Sandboxes[i] = status.Sandboxes[i].Sandbox
	}
	for i := range status.Containers {
		pod.Containers[i] = status.Containers[i].Container
	}
	return pod
}

// shows reports whether a view shows the change that the hint is about. No view shows a
// deletion: a view without the container may be from before its creation.
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
			case runtime.HintStarted: // a sandbox that is not ready may be starting or stopped
				return s.State == runtime.SandboxReady
			case runtime.HintStopped:
				return s.State == runtime.SandboxNotReady
			}
			return false
		}
	}
	return false
}

// join returns the union of two views if it is not certain which of them is newer. It has
// everything that view has, and what only other has, unless that was removed. If the
// states of an item differ, the later state counts, because states only advance: from
// created to running to exited, and from ready to not ready. Neither view is changed.
func join(view, other *runtime.Pod, removed removals) *runtime.Pod {
	var nothing runtime.Pod
	if view == nil {
		view = &nothing
	}
	return &runtime.Pod{
		PodRef: other.PodRef,
		Sandboxes: joinLists(view.Sandboxes, other.Sandboxes, sandboxID,
			func(was, is *runtime.Sandbox) bool { return is.State == runtime.SandboxNotReady },
			func(s *runtime.Sandbox) bool { return removed[Event{SandboxID: s.ID}] }),
		Containers: joinLists(view.Containers, other.Containers, containerID,
			func(was, is *runtime.Container) bool {
				return is.State == runtime.ContainerExited || was.State == runtime.ContainerCreated
			},
			func(c *runtime.Container) bool { return removed[Event{ContainerID: c.ID}] }),
	}
}

func joinLists[T any, ID comparable](view, other []T, id func(*T) ID, later func(was, is *T) bool,
	removed func(*T) bool) []T {
	joint := slices.Clone(view)
	there := index(joint, id)
	for i := range other {
		is := &other[i]
		if was := there[id(is)]; was != nil {
			if later(was, is) {
				*was = *is
			}
		} else if !removed(is) {
			joint = append(joint, *is)
		}
	}
	return joint
}

// removals is a set of containers and sandboxes that were removed, as events with an ID
// only.
type removals map[Event]bool

// with returns the set with the removals among the events.
func (r removals) with(events []Event) removals {
	for _, e := range events {
		if e.Type == ContainerRemoved || e.Type == SandboxRemoved {
			if r == nil {
				r = removals{}
			}
			r[Event{ContainerID: e.ContainerID, SandboxID: e.SandboxID}] = true
		}
	}
	return r
}
