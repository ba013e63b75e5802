package pleg

import "github.com/kubeletkit/kubeletkit/runtime"

// diff returns the events between two views of a pod: sandboxes first, then containers,
// each in the order of the views. It allocates nothing if the views are equal, which is the
// common case.
func diff(before, after *runtime.Pod) []Event {
	sandboxesBefore, containersBefore := itemsOf(before)
	sandboxesAfter, containersAfter := itemsOf(after)
	var events []Event
	if !equal(sandboxesBefore, sandboxesAfter, sameSandbox) {
		events = diffSandboxes(sandboxesBefore, sandboxesAfter)
	}
	if !equal(containersBefore, containersAfter, sameContainer) {
		events = append(events, diffContainers(containersBefore, containersAfter)...)
	}
	return events
}

func itemsOf(view *runtime.Pod) ([]runtime.Sandbox, []runtime.Container) {
	if view == nil {
		return nil, nil
	}
	return view.Sandboxes, view.Containers
}

func diffSandboxes(before, after []runtime.Sandbox) (events []Event) {
	add := func(s *runtime.Sandbox, t Type) { events = append(events, Event{Type: t, SandboxID: s.ID}) }
	diffLists(before, after, sandboxID, sameSandbox,
		func(s *runtime.Sandbox) {
			if s.State == runtime.SandboxReady {
				add(s, SandboxStarted)
			} else {
				add(s, SandboxDied)
			}
		},
		func(s *runtime.Sandbox) {
			if s.State == runtime.SandboxReady {
				add(s, SandboxDied)
			}
			add(s, SandboxRemoved)
		})
	return events
}

func diffContainers(before, after []runtime.Container) (events []Event) {
	add := func(c *runtime.Container, t Type) {
		events = append(events, Event{Type: t, ContainerID: c.ID, Name: c.Name})
	}
	diffLists(before, after, containerID, sameContainer,
		func(c *runtime.Container) {
			switch c.State {
			case runtime.ContainerRunning:
				add(c, ContainerStarted)
			case runtime.ContainerExited:
				add(c, ContainerDied)
			default:
				add(c, ContainerChanged)
			}
		},
		func(c *runtime.Container) {
			if c.State != runtime.ContainerExited {
				add(c, ContainerDied)
			}
			add(c, ContainerRemoved)
		})
	return events
}

// diffLists calls changed for the items that are new or not the same as before, and removed
// for those that are not there any more.
func diffLists[T any, ID comparable](before, after []T, id func(*T) ID, same func(was, is *T) bool,
	changed, removed func(*T)) {
	old, now := index(before, id), index(after, id)
	for i := range after {
		is := &after[i]
		if was := old[id(is)]; was == nil || !same(was, is) {
			changed(is)
		}
	}
	for i := range before {
		if now[id(&before[i])] == nil {
			removed(&before[i])
		}
	}
}

// index returns the items of a list by their IDs.
func index[T any, ID comparable](list []T, id func(*T) ID) map[ID]*T {
	items := make(map[ID]*T, len(list))
	for i := range list {
		items[id(&list[i])] = &list[i]
	}
	return items
}

// equal reports whether two lists have the same items in the same order.
func equal[T any](before, after []T, same func(was, is *T) bool) bool {
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

// merge returns the set with the events of more that it does not have. more is not
// changed.
func merge(set, more []Event) []Event {
	if len(set) == 0 || len(more) == 0 {
		return append(set, more...)
	}
	has := make(map[Event]struct{}, len(set))
	for _, e := range set {
		has[e] = struct{}{}
	}
	for _, e := range more {
		if _, there := has[e]; !there {
			set = append(set, e)
		}
	}
	return set
}
