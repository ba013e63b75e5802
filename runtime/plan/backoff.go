package plan

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Backoff limits how often a container is started again; the zero value is
// kubelet's.
type Backoff struct {
	// Initial is the wait after the second exit; it doubles with each further one.
	// Default: 10 seconds. It is never more than Max.
	Initial time.Duration
	// Max is the longest wait. Default: 5 minutes.
	Max time.Duration
	// Reset is how long an instance has to run for earlier exits to be forgotten.
	// Default: 10 minutes.
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

// Crash is what is remembered of a container between computations. It holds no
// pointers and may be copied and compared.
type Crash struct {
	// Instance is the last one whose replacement was decided. Its successor is due
	// whatever its exit code, even if an attempt to start it has failed.
	Instance runtime.ContainerID
	// Waited says that the successor of Instance has been let through: it may be
	// started at once, and that it was is counted.
	Waited bool
	// Delay is how long after the next exit a successor has to wait; 0 before the
	// first exit.
	Delay time.Duration
	// Definition is what Delay was counted for: a hash of what, when it is changed,
	// deserves a new try, which is the image and the resources.
	Definition uint64
}

// waitingReason is the API's word for a container in back-off.
const waitingReason = "CrashLoopBackOff"

// applyBackoff turns what is due into what is to be started now and what waits.
func (p *planner) applyBackoff() {
	for _, s := range p.due {
		c := s.Container
		n := p.Status.Newest(c.Name)
		if n == nil {
			p.out.Start = append(p.out.Start, s)
			continue
		}
		crash, wait := p.Backoff.admit(p.out.Crashes[c.Name], definitionOf(c), n, p.lastExited(s), p.Now)
		p.remember(c.Name, crash)
		if wait <= 0 {
			p.out.Start = append(p.out.Start, s)
			continue
		}
		if p.out.Waiting == nil {
			p.out.Waiting = map[string]v1.ContainerStateWaiting{}
		}
		p.out.Waiting[c.Name] = v1.ContainerStateWaiting{
			Reason: waitingReason,
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				crash.Delay, c.Name, p.Pod.Name, p.Pod.Namespace, p.Pod.UID),
		}
		if p.out.RetryAfter == 0 || wait < p.out.RetryAfter {
			p.out.RetryAfter = wait
		}
	}
}

// admit decides when the successor of n may start: now, or after the wait that
// it returns. n is the newest instance, which is dead or about to be killed; exited
// is the newest that has exited, nil if none has.
//
// An instance is counted when its successor is let through, and once only.
func (b Backoff) admit(was Crash, definition uint64, n, exited *runtime.ContainerStatus, now time.Time) (Crash, time.Duration) {
	if was.Definition != definition {
		was.Delay, was.Waited = 0, false
	}
	if was.Instance == n.ID && was.Waited {
		return was, 0
	}
	is := Crash{Instance: n.ID, Waited: true, Delay: was.Delay, Definition: definition}
	switch {
	case exited == nil:
		// The first instance, killed by us: nothing has crashed yet.
	case was.Delay == 0 || lifetime(n, now) >= b.Reset:
		is.Delay = b.Initial
	default:
		// An exit that lies further in the future than the delay is long was stamped
		// before the clock was set back, and is not waited for.
		if since := now.Sub(exited.FinishedAt); since.Abs() < was.Delay {
			is.Waited = false
			return is, was.Delay - since
		}
		is.Delay = min(2*was.Delay, b.Max)
	}
	return is, 0
}

// lifetime is how long the instance has run.
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

// lastExited returns the newest instance of the container that has exited, or
// nil. Of an init container only those in the sandbox in use count: it runs again
// in each sandbox because it has to, not because it has crashed.
func (p *planner) lastExited(s Start) *runtime.ContainerStatus {
	for i := range p.Status.Containers {
		c := &p.Status.Containers[i]
		if c.Name == s.Container.Name && c.State == runtime.ContainerExited &&
			(s.Kind != runtime.InitContainer || c.SandboxID == p.out.SandboxID) {
			return c
		}
	}
	return nil
}

// definitionOf hashes what makes back-off begin anew when it changes.
func definitionOf(c *v1.Container) uint64 {
	// Neither an image nor resources can fail to encode, and maps are encoded sorted.
	b, _ := json.Marshal(struct {
		Image     string
		Resources *v1.ResourceRequirements
	}{c.Image, &c.Resources})
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}

// oweSuccessor notes that an instance that may run is killed for the sake of a
// successor: should that not be started at once, the exit code, which then is our
// own doing, must not decide about it. n may be nil.
func (p *planner) oweSuccessor(n *runtime.ContainerStatus) {
	if n == nil || n.State != runtime.ContainerRunning && n.State != runtime.ContainerUnknown {
		return
	}
	crash := p.out.Crashes[n.Name]
	if crash.Instance != n.ID {
		crash.Instance, crash.Waited = n.ID, false
		p.remember(n.Name, crash)
	}
}

// owesSuccessor reports whether it was decided that the instance be replaced.
func (p *planner) owesSuccessor(n *runtime.ContainerStatus) bool {
	crash, ok := p.Crashes[n.Name]
	return ok && crash.Instance == n.ID
}

// remember sets what is known of the container in the map that is returned; the
// map that was handed in is left as it is.
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
