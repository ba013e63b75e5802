package plegtest

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Events returns what happened to a pod between two views of it, by the definitions
// of the event types: sandboxes first, then containers, each in the order of the
// lists. nil stands for a pod that does not exist.
func Events(before, after *runtime.Pod) []pleg.Event {
	var nothing runtime.Pod
	if before == nil {
		before = &nothing
	}
	if after == nil {
		after = &nothing
	}
	var events []pleg.Event
	for _, s := range after.Sandboxes {
		was := before.Sandboxes[:0:0]
		if i := slices.IndexFunc(before.Sandboxes, func(o runtime.Sandbox) bool { return o.ID == s.ID }); i >= 0 {
			was = before.Sandboxes[i : i+1]
		}
		if len(was) > 0 && was[0].State == s.State {
			continue
		}
		kind := pleg.SandboxDied
		if s.State == runtime.SandboxReady {
			kind = pleg.SandboxStarted
		}
		events = append(events, pleg.Event{Type: kind, SandboxID: s.ID})
	}
	for _, s := range before.Sandboxes {
		if slices.ContainsFunc(after.Sandboxes, func(o runtime.Sandbox) bool { return o.ID == s.ID }) {
			continue
		}
		if s.State == runtime.SandboxReady {
			events = append(events, pleg.Event{Type: pleg.SandboxDied, SandboxID: s.ID})
		}
		events = append(events, pleg.Event{Type: pleg.SandboxRemoved, SandboxID: s.ID})
	}
	for _, c := range after.Containers {
		var was runtime.ContainerState // "" if there was no such container
		if i := slices.IndexFunc(before.Containers, func(o runtime.Container) bool { return o.ID == c.ID }); i >= 0 {
			was = before.Containers[i].State
		}
		if was == c.State {
			continue
		}
		kind := pleg.ContainerChanged
		switch c.State {
		case runtime.ContainerRunning:
			kind = pleg.ContainerStarted
		case runtime.ContainerExited:
			kind = pleg.ContainerDied
		}
		events = append(events, pleg.Event{Type: kind, ContainerID: c.ID, Name: c.Name})
	}
	for _, c := range before.Containers {
		if slices.ContainsFunc(after.Containers, func(o runtime.Container) bool { return o.ID == c.ID }) {
			continue
		}
		if c.State != runtime.ContainerExited {
			events = append(events, pleg.Event{Type: pleg.ContainerDied, ContainerID: c.ID, Name: c.Name})
		}
		events = append(events, pleg.Event{Type: pleg.ContainerRemoved, ContainerID: c.ID, Name: c.Name})
	}
	return events
}
