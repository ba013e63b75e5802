package fake

import (
	"slices"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exit ends the matching containers that run, also those that nothing else can
// end, as if by themselves, and returns how many there were.
func (r *Runtime) Exit(t Target, code int32) int {
	return r.each(t, func(c *container) { r.s.end(c, code, "") })
}

// OOMKill ends the matching containers that run as the kernel does for want of
// memory, and returns how many there were.
func (r *Runtime) OOMKill(t Target) int {
	return r.each(t, func(c *container) { r.s.end(c, codeKILL, "OOMKilled") })
}

// each does something to the matching containers that run, and counts them.
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

// KillSandbox has the ready sandboxes of the matching pods die with all that runs
// in them, and returns how many there were.
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

// SetCondition sets what the runtime says of itself, as
// SetCondition("NetworkReady", false, "NetworkPluginNotReady", "cni not initialized").
func (r *Runtime) SetCondition(name string, ok bool, reason, message string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	// A list that was handed out is not changed.
	r.s.conditions = append(slices.DeleteFunc(slices.Clone(r.s.conditions), func(c *criv1.RuntimeCondition) bool { return c.GetType() == name }),
		&criv1.RuntimeCondition{Type: name, Status: ok, Reason: reason, Message: message})
	r.s.cond.Changed()
}

// RemoveCondition removes a condition from what the runtime says of itself.
func (r *Runtime) RemoveCondition(name string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.conditions = slices.DeleteFunc(slices.Clone(r.s.conditions), func(c *criv1.RuntimeCondition) bool { return c.GetType() == name })
	r.s.cond.Changed()
}

// Memory is what a runtime that was stopped still knows when it starts again.
type Memory int

// What a start leaves of the state before.
const (
	// Keep: containers have gone on meanwhile, as with a runtime whose containers do
	// not depend on its daemon; exits of that time are known.
	Keep Memory = iota
	// Reboot: all is known, and nothing runs any more, as after a restart of the
	// machine.
	Reboot
	// Forget: nothing is known but the images, as when the runtime's directory was
	// deleted. What ran has vanished.
	Forget
)

// Stop has the runtime answer no more: calls under way and those to come fail with
// Unavailable, and streams of events break. Containers go on. A stopped runtime
// stays so.
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

// Start has a stopped runtime answer again. No event tells what has happened
// meanwhile, nor what was lost.
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
			// containerd's code and reason for one whose end nobody has seen.
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
