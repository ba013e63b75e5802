package pleg

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// A view of a pod is what a list or a status shows of it: its containers and sandboxes
// with their states. nil is the view of a pod that does not exist.

// agree reports whether a status shows the same containers and sandboxes in the same
// states as a view.
func agree(status *runtime.PodStatus, listed *runtime.Pod) bool {
	var nothing runtime.Pod
	if listed == nil {
		listed = &nothing
	}
	if len(status.Sandboxes) != len(listed.Sandboxes) || len(status.Containers) != len(listed.Containers) {
		return false
	}
	next := 0
	for i := range status.Sandboxes {
		s := &status.Sandboxes[i].Sandbox
		at := find(listed.Sandboxes, next, s.ID, sandboxID)
		if at < 0 || listed.Sandboxes[at].State != s.State {
			return false
		}
		next = at + 1
	}
	next = 0
	for i := range status.Containers {
		c := &status.Containers[i].Container
		at := find(listed.Containers, next, c.ID, containerID)
		if at < 0 || listed.Containers[at].State != c.State {
			return false
		}
		next = at + 1
	}
	return true
}

// listing returns the view that a status shows.
func listing(status *runtime.PodStatus) *runtime.Pod {
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

// shows reports whether a view shows what the hint says. No view shows that something was
// deleted: it may have been read before the thing was created.
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
			case runtime.HintStarted: // a sandbox that is not ready may not be so yet, or no longer
				return s.State == runtime.SandboxReady
			case runtime.HintStopped:
				return s.State == runtime.SandboxNotReady
			}
			return false
		}
	}
	return false
}

// join returns the union of two views when it is not known which of them is newer.
// Where they show different states, the later state counts, since a life goes one way.
// What only other shows was created after view, unless it is among the removals in gone.
// A join has everything that view has. Neither view is changed.
func join(view, other *runtime.Pod, gone []Event) *runtime.Pod {
	var nothing runtime.Pod
	if view == nil {
		view = &nothing
	}
	return &runtime.Pod{
		PodRef: other.PodRef,
		Sandboxes: joinLists(view.Sandboxes, other.Sandboxes, sandboxID,
			func(was, is *runtime.Sandbox) bool { return is.State == runtime.SandboxNotReady },
			func(id string) bool { return contains(gone, &Event{Type: SandboxRemoved, SandboxID: id}) }),
		Containers: joinLists(view.Containers, other.Containers, containerID,
			func(was, is *runtime.Container) bool {
				return is.State == runtime.ContainerExited || was.State == runtime.ContainerCreated
			},
			func(id runtime.ContainerID) bool {
				return contains(gone, &Event{Type: ContainerRemoved, ContainerID: id})
			}),
	}
}

func joinLists[T any, ID comparable](view, other []T, id func(*T) ID, later func(was, is *T) bool, gone func(ID) bool) []T {
	joint := slices.Clone(view)
	next := 0
	for i := range other {
		o := &other[i]
		at := find(view, next, id(o), id)
		switch {
		case at >= 0:
			next = at + 1
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
	return to
}
