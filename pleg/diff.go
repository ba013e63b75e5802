package pleg

import "github.com/kubeletkit/kubeletkit/runtime"

// diff returns what happened to a pod between two lists, sandboxes first, then
// containers, each in the order of the lists. nil stands for a pod that was not
// in the list. It allocates nothing when nothing happened.
func diff(before, after *runtime.Pod) []Event {
	var nothing runtime.Pod
	if before == nil {
		before = &nothing
	}
	if after == nil {
		after = &nothing
	}
	events := diffSandboxes(nil, before.Sandboxes, after.Sandboxes)
	return diffContainers(events, before.Containers, after.Containers)
}

func diffContainers(events []Event, before, after []runtime.Container) []Event {
	if unchanged(before, after, sameContainer) {
		return events
	}
	next := 0
	for i := range after {
		c := &after[i]
		var was runtime.ContainerState // "" if it was not there
		if at := find(before, next, c.ID, containerID); at >= 0 {
			was, next = before[at].State, at+1
		}
		if was == c.State {
			continue
		}
		event := Event{Type: ContainerChanged, ContainerID: c.ID, Name: c.Name}
		switch c.State {
		case runtime.ContainerRunning:
			event.Type = ContainerStarted
		case runtime.ContainerExited:
			event.Type = ContainerDied
		}
		events = append(events, event)
	}
	next = 0
	for i := range before {
		c := &before[i]
		if at := find(after, next, c.ID, containerID); at >= 0 {
			next = at + 1
			continue
		}
		event := Event{Type: ContainerDied, ContainerID: c.ID, Name: c.Name}
		if c.State != runtime.ContainerExited {
			events = append(events, event)
		}
		event.Type = ContainerRemoved
		events = append(events, event)
	}
	return events
}

func diffSandboxes(events []Event, before, after []runtime.Sandbox) []Event {
	if unchanged(before, after, sameSandbox) {
		return events
	}
	next := 0
	for i := range after {
		s := &after[i]
		var was runtime.SandboxState // "" if it was not there
		if at := find(before, next, s.ID, sandboxID); at >= 0 {
			was, next = before[at].State, at+1
		}
		if was == s.State {
			continue
		}
		event := Event{Type: SandboxDied, SandboxID: s.ID}
		if s.State == runtime.SandboxReady {
			event.Type = SandboxStarted
		}
		events = append(events, event)
	}
	next = 0
	for i := range before {
		s := &before[i]
		if at := find(after, next, s.ID, sandboxID); at >= 0 {
			next = at + 1
			continue
		}
		if s.State == runtime.SandboxReady {
			events = append(events, Event{Type: SandboxDied, SandboxID: s.ID})
		}
		events = append(events, Event{Type: SandboxRemoved, SandboxID: s.ID})
	}
	return events
}

// unchanged is the short way for the common case: the same things in the same
// states and the same order.
func unchanged[T any](before, after []T, same func(a, b *T) bool) bool {
	if len(before) != len(after) {
		return false
	}
	for i := range after {
		if !same(&before[i], &after[i]) {
			return false
		}
	}
	return true
}

func sameContainer(a, b *runtime.Container) bool { return a.State == b.State && a.ID == b.ID }
func sameSandbox(a, b *runtime.Sandbox) bool     { return a.State == b.State && a.ID == b.ID }

func containerID(c *runtime.Container) runtime.ContainerID { return c.ID }
func sandboxID(s *runtime.Sandbox) string                  { return s.ID }

// find returns where the ID is in the list, or -1. It begins to look at next,
// which callers put behind their last find: two lists of a pod mostly have the
// same order, so comparing them takes one step for each item, and no map.
func find[T any, ID comparable](list []T, next int, id ID, of func(*T) ID) int {
	for i := range list {
		at := next + i
		if at >= len(list) {
			at -= len(list)
		}
		if of(&list[at]) == id {
			return at
		}
	}
	return -1
}

// agree reports whether a status shows the same containers and sandboxes, in the
// same states, as a list.
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

// listing returns the part of a status that is in a list.
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

// merge adds the events that are not in the set yet. more is left as it is.
func merge(set, more []Event) []Event {
	had := len(set)
	for i := range more {
		if !contains(set[:had], &more[i]) {
			set = append(set, more[i])
		}
	}
	return set
}

// contains compares IDs first: the types repeat, the IDs rarely do.
func contains(set []Event, e *Event) bool {
	for i := range set {
		if set[i].ContainerID == e.ContainerID && set[i].SandboxID == e.SandboxID && set[i].Type == e.Type {
			return true
		}
	}
	return false
}
