package pleg

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// join returns what two views of a pod show together, of which nobody knows which
// is newer. What is in different states is in the later one, for its life goes one
// way; what only other shows was made after view, unless it is among what is known
// to be gone. Neither view is changed, and a join loses nothing that view has.
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

// appendRemovals adds those of the events that tell of a removal.
func appendRemovals(to, events []Event) []Event {
	for i := range events {
		if t := events[i].Type; t == ContainerRemoved || t == SandboxRemoved {
			to = append(to, events[i])
		}
	}
	return to
}
