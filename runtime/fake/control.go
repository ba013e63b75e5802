package fake

import (
	"slices"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exit makes the matching running containers exit as if by themselves, unkillable ones
// too, and returns their number.
func (r *Runtime) Exit(t Target, code int32) int {
	return r.each(t, func(c *container) { r.s.end(c, code, "") })
}

// OOMKill makes the matching running containers exit as if the kernel had killed them
// for lack of memory, and returns their number.
func (r *Runtime) OOMKill(t Target) int {
	return r.each(t, func(c *container) { r.s.end(c, codeKILL, "OOMKilled") })
}

// each calls do for the matching running containers and returns their number.
func (r *Runtime) each(t Target, do func(*container)) int {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	n := 0
	for _, c := range r.s.containers.about(t) {
		if c.state == criv1.ContainerState_CONTAINER_RUNNING && t.matches(c.sandbox.pod, c.name(), c.image()) {
			do(c)
			n++
		}
	}
	return n
}

// KillSandbox kills the ready sandboxes of the matching pods with their containers, and
// returns the number of sandboxes.
func (r *Runtime) KillSandbox(t Target) int {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	n := 0
	for _, sb := range r.s.sandboxes.about(t) {
		if !sb.ready || !t.matches(sb.pod, "", "") {
			continue
		}
		n++
		for _, c := range sb.containers {
			r.s.end(c, codeKILL, "")
		}
		r.s.lose(sb)
	}
	return n
}

// SetCondition sets a condition in the status of the runtime, as in
// SetCondition("NetworkReady", false, "NetworkPluginNotReady", "cni not initialized").
func (r *Runtime) SetCondition(name string, ok bool, reason, message string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	// A list that was returned is not changed.
	r.s.conditions = append(slices.DeleteFunc(slices.Clone(r.s.conditions),
		func(c *criv1.RuntimeCondition) bool { return c.GetType() == name }),
		&criv1.RuntimeCondition{Type: name, Status: ok, Reason: reason, Message: message})
	r.s.cond.Changed()
}

// RemoveCondition removes a condition from the status of the runtime.
func (r *Runtime) RemoveCondition(name string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.conditions = slices.DeleteFunc(slices.Clone(r.s.conditions),
		func(c *criv1.RuntimeCondition) bool { return c.GetType() == name })
	r.s.cond.Changed()
}

// Memory is the state that a stopped runtime has when it starts again.
type Memory int

// The states after a restart.
const (
	// Keep keeps everything: containers have continued to run without the daemon, and
	// exits in the meantime are known.
	Keep Memory = iota
	// Reboot keeps the records, but nothing runs any more, as after a restart of the
	// machine.
	Reboot
	// Forget keeps only the images, as when the runtime's directory was deleted. The
	// containers are gone.
	Forget
)

// Stop makes the runtime unavailable: calls in progress and later ones fail with
// Unavailable, and event streams break. Containers continue to run.
func (r *Runtime) Stop() {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	s.unheard, s.overtaken = nil, nil
	for _, cancel := range s.underWay {
		cancel(errStopped)
	}
	for sub := range s.subs {
		sub.fail(unavailable())
	}
	s.cond.Changed()
}

// Start makes a stopped runtime available again. No events are sent for changes in the
// meantime, nor for state that was lost.
func (r *Runtime) Start(m Memory) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.down {
		return
	}
	for _, sb := range slices.Clone(s.sandboxes.all) {
		if m == Keep {
			break
		}
		s.lose(sb)
		for _, c := range slices.Clone(sb.containers) {
			// containerd's code and reason for a container whose exit it has missed.
			s.end(c, 255, "Unknown")
			if m == Forget {
				s.drop(c)
			}
		}
		if m == Forget {
			s.dropSandbox(sb)
		}
	}
	s.down = false
	s.cond.Changed()
}

// Restart stops the runtime and starts it again.
func (r *Runtime) Restart(m Memory) {
	r.Stop()
	r.Start(m)
}
