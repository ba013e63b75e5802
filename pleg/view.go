package pleg

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// A view of a pod is a *runtime.Pod: its containers and sandboxes with their states, from
// a list or a status. nil is the view of a pod that does not exist.

// agree reports whether a status shows the same containers and sandboxes in the same
// states as a view.
func agree(status *runtime.PodStatus, view *runtime.Pod) bool {
	var nothing runtime.Pod
	if view == nil {
		view = &nothing
	}
	if len(status.Sandboxes) != len(view.Sandboxes) || len(status.Containers) != len(view.Containers) {
		return false
	}
	sandboxes := finderOf(view.Sandboxes, sandboxID)
	for i := range status.Sandboxes {
		s := &status.Sandboxes[i].Sandbox
		if at := sandboxes.find(s.ID); at < 0 || view.Sandboxes[at].State != s.State {
			return false
		}
	}
	containers := finderOf(view.Containers, containerID)
	for i := range status.Containers {
		c := &status.Containers[i].Container
		if at := containers.find(c.ID); at < 0 || view.Containers[at].State != c.State {
			return false
		}
	}
	return true
}

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
// everything that view has, and what only other has, unless that is among the removals in
// gone. If the states of an item differ, the later state counts, because states only
// advance: from created to running to exited, and from ready to not ready. Neither view
// is changed.
func join(view, other *runtime.Pod, gone []Event) *runtime.Pod {
	var nothing runtime.Pod
	if view == nil {
		view = &nothing
	}
	isGone := containing(gone, len(other.Sandboxes)+len(other.Containers))
	return &runtime.Pod{
		PodRef: other.PodRef,
		Sandboxes: joinLists(view.Sandboxes, other.Sandboxes, sandboxID,
			func(was, is *runtime.Sandbox) bool { return is.State == runtime.SandboxNotReady },
			func(id string) bool { return isGone(&Event{Type: SandboxRemoved, SandboxID: id}) }),
		Containers: joinLists(view.Containers, other.Containers, containerID,
			func(was, is *runtime.Container) bool {
				return is.State == runtime.ContainerExited || was.State == runtime.ContainerCreated
			},
			func(id runtime.ContainerID) bool {
				return isGone(&Event{Type: ContainerRemoved, ContainerID: id})
			}),
	}
}

func joinLists[T any, ID comparable](view, other []T, id func(*T) ID, later func(was, is *T) bool, gone func(ID) bool) []T {
	joint := slices.Clone(view)
	there := finderOf(view, id)
	for i := range other {
		o := &other[i]
		at := there.find(id(o))
		switch {
		case at >= 0:
			if later(&joint[at], o) {
				joint[at] = *o
			}
		case !gone(id(o)):
			joint = append(joint, *o)
		}
	}
	return joint
}

// appendRemovals appends those of the events that are removals.
func appendRemovals(to, events []Event) []Event {
	for i := range events {
		if t := events[i].Type; t == ContainerRemoved || t == SandboxRemoved {
			to = append(to, events[i])
		}
	}
	return latest(to, len(events))
}
