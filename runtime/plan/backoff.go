package plan

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Backoff limits the rate of restarts. The zero value is kubelet's.
type Backoff struct {
	// Initial is the wait after the second exit. It doubles with each further exit. It is
	// at most Max. Default: 10 seconds.
	Initial time.Duration
	// Max is the longest wait. Default: 5 minutes.
	Max time.Duration
	// Reset is the time that an instance has to run for earlier exits not to count any
	// more. Nor do they if its successor starts that much later than its back-off allows, as
	// an init container in a new sandbox. Default: 10 minutes.
	Reset time.Duration
}

func (b Backoff) withDefaults() Backoff {
	if b.Initial <= 0 {
		b.Initial = 10 * time.Second
	}
	if b.Max <= 0 {
		b.Max = 5 * time.Minute
	}
	if b.Reset <= 0 {
		b.Reset = 10 * time.Minute
	}
	b.Initial = min(b.Initial, b.Max)
	return b
}

// Crash is the back-off state of a container between two calls of [Compute]. It has no
// pointers and may be copied and compared.
type Crash struct {
	// Instance is the last instance that Compute decided to replace. Its successor is due
	// whatever the exit code is, also if an attempt to start it has failed.
	Instance runtime.ContainerID
	// Waited means that the back-off of the successor is over: it may start at once, and
	// Instance is counted.
	Waited bool
	// Delay is the wait after the next exit. It is 0 before the first exit.
	Delay time.Duration
	// Definition is the hash of the image and the resources that Delay is for. If they
	// change, the back-off starts from the beginning.
	Definition uint64
}

// waitingReason is the API's word for a container in back-off.
const waitingReason = "CrashLoopBackOff"

// doBackOff divides the containers that are due into those that start now and those
// that wait.
func (p *planner) doBackOff() {
	for _, s := range p.due {
		c := s.Container
		n := p.Status.Newest(c.Name)
		if n == nil {
			if crash := p.out.Crashes[c.Name]; crash.Definition == definitionOf(c) && crash.Waited {
				s.Backoff = crash.Delay // its instances were removed, to restart all containers
			}
			p.out.Start = append(p.out.Start, s)
			continue
		}
		crash, wait := p.Backoff.admit(p.recall(c, n), definitionOf(c), n, p.lastExited(c.Name), p.Now)
		p.remember(c.Name, crash)
		if wait <= 0 {
			s.Backoff = crash.Delay
			p.out.Start = append(p.out.Start, s)
			continue
		}
		p.wait(c.Name, crash.Delay, wait)
	}
}

// wait makes a container wait for the rest of its back-off.
func (p *planner) wait(name string, delay, left time.Duration) {
	if p.out.Waiting == nil {
		p.out.Waiting = map[string]v1.ContainerStateWaiting{}
	}
	p.out.Waiting[name] = v1.ContainerStateWaiting{
		Reason: waitingReason,
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
			delay, name, p.Pod.Name, p.Pod.Namespace, p.Pod.UID),
	}
	if p.out.RetryAfter == 0 || left < p.out.RetryAfter {
		p.out.RetryAfter = left
	}
}

// admit returns how long the successor of n has to wait, and the new state. n is the
// newest instance; it is dead or about to be killed. exited is the newest instance that
// has exited, or nil.
//
// An instance is counted once, when its successor may start.
func (b Backoff) admit(was Crash, definition uint64, n, exited *runtime.ContainerStatus,
	now time.Time) (Crash, time.Duration) {
	if was.Definition != definition {
		was.Delay, was.Waited = 0, false
	}
	if was.Instance == n.ID && was.Waited {
		return was, 0
	}
	is := Crash{Instance: n.ID, Waited: true, Delay: was.Delay, Definition: definition}
	forgotten := func() bool {
		return !exited.FinishedAt.IsZero() && now.Sub(exited.FinishedAt)-was.Delay >= b.Reset
	}
	switch {
	case exited == nil:
		// The agent killed the first instance: nothing has crashed yet.
	case was.Delay == 0 || lifetime(n, now) >= b.Reset || forgotten():
		is.Delay = b.Initial
	default:
		// An exit that is further in the future than the delay is from before the clock was
		// set back. It does not delay the successor.
		if since := now.Sub(exited.FinishedAt); since.Abs() < was.Delay {
			is.Waited = false
			return is, was.Delay - since
		}
		is.Delay = min(2*was.Delay, b.Max)
	}
	return is, 0
}

// lifetime returns how long the instance has run.
func lifetime(n *runtime.ContainerStatus, now time.Time) time.Duration {
	switch {
	case n.StartedAt.IsZero():
		return 0
	case n.State == runtime.ContainerRunning:
		return now.Sub(n.StartedAt)
	case n.FinishedAt.IsZero():
		return 0
	default:
		return n.FinishedAt.Sub(n.StartedAt)
	}
}

// lastExited returns the newest instance of the container that has exited, or nil. It may have run in
// an earlier sandbox, also if it is one of an init container, which runs again in each sandbox: a
// container that can kill the first process of the sandbox would have it made again without end.
func (p *planner) lastExited(name string) *runtime.ContainerStatus {
	for i := range p.Status.Containers {
		if c := &p.Status.Containers[i]; c.Name == name && c.State == runtime.ContainerExited {
			return c
		}
	}
	return nil
}

// definitionOf returns the hash for [Crash].Definition.
func definitionOf(c *v1.Container) uint64 {
	// An image and resources always encode, and maps are encoded in order.
	b, _ := json.Marshal(struct {
		Image     string
		Resources *v1.ResourceRequirements
	}{c.Image, &c.Resources})
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}

// recall returns the back-off state of the container whose newest instance is n. If the
// state is lost, as after a restart of the agent, it is what was recorded with the
// instance, unless the container has another definition now. c and n may be nil.
func (p *planner) recall(c *v1.Container, n *runtime.ContainerStatus) Crash {
	if n == nil {
		return Crash{}
	}
	crash, ok := p.out.Crashes[n.Name]
	if !ok && c != nil && n.Backoff > 0 && !changed(c, n) {
		crash = Crash{Delay: min(n.Backoff, p.Backoff.Max), Definition: definitionOf(c)}
	}
	return crash
}

// oweSuccessor records that an instance that may run is killed in order to be replaced.
// If its successor cannot start at once, the exit code must not decide about it, since it
// is the agent's doing. n may be nil.
func (p *planner) oweSuccessor(n *runtime.ContainerStatus) {
	if n == nil || n.State != runtime.ContainerRunning && n.State != runtime.ContainerUnknown {
		return
	}
	c, _ := podspec.FindContainer(&p.Pod.Spec, n.Name)
	crash := p.recall(c, n)
	if crash.Instance != n.ID {
		crash.Instance, crash.Waited = n.ID, false
		p.remember(n.Name, crash)
	}
}

// owesSuccessor reports whether an earlier call decided to replace the instance.
func (p *planner) owesSuccessor(n *runtime.ContainerStatus) bool {
	crash, ok := p.Crashes[n.Name]
	return ok && crash.Instance == n.ID
}

// remember sets the state of the container in the map that Compute returns. The map that
// was passed in is not changed.
func (p *planner) remember(name string, crash Crash) {
	if old, ok := p.out.Crashes[name]; ok && old == crash {
		return
	}
	if p.copied {
		p.out.Crashes[name] = crash
		return
	}
	p.out.Crashes = maps.Clone(p.out.Crashes)
	if p.out.Crashes == nil {
		p.out.Crashes = map[string]Crash{}
	}
	p.out.Crashes[name], p.copied = crash, true
}
