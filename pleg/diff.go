package pleg

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/runtime"
)

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
	old, now := finderOf(before, containerID), finderOf(after, containerID)
	for i := range after {
		c := &after[i]
		var was runtime.ContainerState // "" if it was not there
		if at := old.find(c.ID); at >= 0 {
			was = before[at].State
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
	for i := range before {
		c := &before[i]
		if now.find(c.ID) >= 0 {
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
	old, now := finderOf(before, sandboxID), finderOf(after, sandboxID)
	for i := range after {
		s := &after[i]
		var was runtime.SandboxState // "" if it was not there
		if at := old.find(s.ID); at >= 0 {
			was = before[at].State
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
	for i := range before {
		s := &before[i]
		if now.find(s.ID) >= 0 {
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

// finder finds the items of a list by their IDs. Two lists of a pod mostly have the same
// order, so it begins behind the last item found: comparing them takes one step for each
// item and no map. A runtime can list any number of items, each time in another order; then
// it makes a map.
type finder[T any, ID comparable] struct {
	list []T
	id   func(*T) ID
	// next is where the next search begins, steps the number of steps that all searches may
	// still take. When there are none left, index has the items.
	next, steps int
	index       map[ID]int
}

func finderOf[T any, ID comparable](list []T, id func(*T) ID) finder[T, ID] {
	return finder[T, ID]{list: list, id: id, steps: 64 + 4*len(list)}
}

// find returns the index of the item with the ID, or -1.
func (f *finder[T, ID]) find(id ID) int {
	for i := 0; f.index == nil && i < len(f.list); i++ {
		at := f.next + i
		if at >= len(f.list) {
			at -= len(f.list)
		}
		if f.id(&f.list[at]) == id {
			f.next = at + 1
			return at
		}
		if f.steps--; f.steps == 0 {
			f.index = make(map[ID]int, len(f.list))
			for i := range f.list {
				f.index[f.id(&f.list[i])] = i
			}
		}
	}
	if at, ok := f.index[id]; ok {
		return at
	}
	return -1
}

// maxEvents is the number of events of a pod that are kept while events are added, unless
// more are added at once. A runtime can list other containers each time, and fail to report
// the status of the pod. Of more events, the oldest are dropped.
const maxEvents = 1000

// merge returns the set with the events of more that it does not have. more is not
// changed.
func merge(set, more []Event) []Event {
	has := containing(set, len(more))
	for i := range more {
		if !has(&more[i]) {
			set = append(set, more[i])
		}
	}
	return latest(set, len(more))
}

// latest returns the set without the oldest events, if it has too many.
func latest(set []Event, added int) []Event {
	if drop := len(set) - max(maxEvents, added); drop > 0 {
		set = slices.Delete(set, 0, drop)
	}
	return set
}

// eventKey has what distinguishes the events of a pod.
type eventKey struct {
	typ       Type
	container runtime.ContainerID
	sandbox   string
}

func keyOf(e *Event) eventKey { return eventKey{e.Type, e.ContainerID, e.SandboxID} }

// containing returns a function that reports whether the set has an event. It is for a
// number of calls, with which the time is not proportional to the product.
func containing(set []Event, calls int) func(e *Event) bool {
	const few = 64
	if len(set) <= few || calls <= 1 {
		return func(e *Event) bool { return contains(set, e) }
	}
	keys := make(map[eventKey]struct{}, len(set))
	for i := range set {
		keys[keyOf(&set[i])] = struct{}{}
	}
	return func(e *Event) bool {
		_, has := keys[keyOf(e)]
		return has
	}
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
