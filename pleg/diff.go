package pleg

import "github.com/kubeletkit/kubeletkit/runtime"

// diff returns the events between two views of a pod: sandboxes first, then containers,
// each in the order of the views. It allocates nothing if there are none.
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

// unchanged reports whether two lists have the same items with the same states in the
// same order, which is the common case.
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

// find returns the index of the item with the ID, or -1. It begins at next, which callers
// set behind the last item found: two lists of a pod mostly have the same order, so
// comparing them takes one step for each item and no map.
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

// merge returns the set with the events of more that it does not have. more is not
// changed.
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
