package fake

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Target says what a script, a fault or a question is about. A field that is
// empty matches anything, so the zero value matches all.
type Target struct {
	Namespace, Pod string
	UID            types.UID
	// Container is the name in the spec. With it, what concerns a pod as a whole is
	// not matched.
	Container string
	// Image as the spec names it.
	Image string
}

func (t Target) matches(pod runtime.PodRef, container, image string) bool {
	return (t.Namespace == "" || t.Namespace == pod.Namespace) &&
		(t.Pod == "" || t.Pod == pod.Name) &&
		(t.UID == "" || t.UID == pod.UID) &&
		(t.Container == "" || t.Container == container) &&
		(t.Image == "" || t.Image == image)
}

// Container is an instance that is about to start.
type Container struct {
	Pod           runtime.PodRef
	Name          string
	Image         string
	Command, Args []string
	Env           map[string]string
	// Attempt counts the instances of the container, from 0.
	Attempt uint32
}

// Behavior is what an instance of a container does. The zero value runs until it
// is stopped, and ends at once with code 143 when it gets the stop signal.
type Behavior struct {
	// StartDelay is how long StartContainer takes.
	StartDelay time.Duration
	// StartErr makes StartContainer fail; as with containerd the instance then has
	// exited with code 128 and reason StartError.
	StartErr error

	// RunFor is when it ends by itself, after it was started. 0: never.
	RunFor time.Duration
	// ExitCode of its own end.
	ExitCode int32
	// OOM makes its own end one by the kernel, for want of memory: code 137, reason
	// OOMKilled.
	OOM bool

	// StopDelay is how long it takes to end after the stop signal.
	StopDelay time.Duration
	// StopsClean makes it end with code 0 after the stop signal, instead of 143.
	StopsClean bool
	// IgnoresStop makes it go on after the stop signal; it is killed when the grace
	// period is over.
	IgnoresStop bool
	// Unkillable makes it outlive even that, as a process that hangs in the kernel:
	// calls that stop it or its sandbox return only when their context ends, until
	// the instance is ended by [Runtime.Exit].
	Unkillable bool

	// Output is written to the log when it starts, line by line.
	Output string
	// Uses is what it uses while it runs.
	Uses Usage
	// TerminationMessage is left when it ends by itself.
	TerminationMessage string

	// Exec answers commands in the container. The error, if any, is that of the call.
	// nil: every command succeeds and says nothing.
	Exec func(ctx context.Context, cmd []string) (runtime.ExecResult, error)
	// Session is the container's end of the streams of exec and attach, see
	// [Runtime.RunSession]; it returns the exit code of the command. ctx ends with the
	// container. nil: Exec answers a command, and an attached client receives nothing
	// until the container ends.
	Session func(ctx context.Context, s Session) (exitCode int32, err error)
}

// Exits is the behavior of a container that ends with the code after a while. A
// time of 0 means at once.
func Exits(after time.Duration, code int32) Behavior {
	return Behavior{RunFor: max(after, 1), ExitCode: code}
}

// Times returns n instances that behave as b, and then others, for
// [Runtime.Script]: Times(3, Exits(0, 1)) crashes three times and then runs.
// Without any, those that follow behave as the zero value.
func Times(n int, b Behavior, then ...Behavior) []Behavior {
	if len(then) == 0 {
		then = []Behavior{{}}
	}
	return slices.Concat(slices.Repeat([]Behavior{b}, n), then)
}

// script is what the instances of some containers do, one after the other.
type script struct {
	target   Target
	sequence []Behavior
	// started counts the instances of each container since the script was given.
	started map[containerKey]int
}

type containerKey struct {
	uid  types.UID
	name string
}

// Script says what the next instances of the containers do, counted for each
// container: the first as the first behavior, and so on; the last one goes on for
// all that follow. Of several scripts for a container the newest counts. One
// without behaviors takes back all earlier ones for the same target.
//
// Instances that were started before are not concerned; see [Runtime.Exit].
func (r *Runtime) Script(t Target, sequence ...Behavior) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts = slices.DeleteFunc(s.scripts, func(old *script) bool { return old.target == t })
	if len(sequence) > 0 {
		s.scripts = append(s.scripts, &script{t, slices.Clone(sequence), map[containerKey]int{}})
	}
}

// scripted returns how the next instance of a container is to behave, if a script
// says so, and moves that script on. mu is held.
func (s *service) scripted(c *container) (Behavior, bool) {
	for _, sc := range slices.Backward(s.scripts) {
		if !sc.target.matches(c.sandbox.pod, c.name(), c.image()) {
			continue
		}
		key := containerKey{c.sandbox.pod.UID, c.name()}
		n := sc.started[key]
		sc.started[key]++
		return sc.sequence[min(n, len(sc.sequence)-1)], true
	}
	return Behavior{}, false
}

// behaviorOf is that of an instance which is about to start. It is called without
// mu, since it may call the embedder.
func (s *service) behaviorOf(c *container) Behavior {
	s.mu.Lock()
	b, ok := s.scripted(c)
	s.mu.Unlock()
	if ok || s.opts.Behavior == nil {
		return b
	}
	about := Container{
		Pod: c.sandbox.pod, Name: c.name(), Image: c.image(),
		Command: slices.Clone(c.config.GetCommand()), Args: slices.Clone(c.config.GetArgs()),
		Env: map[string]string{}, Attempt: c.config.GetMetadata().GetAttempt(),
	}
	for _, e := range c.config.GetEnvs() {
		about.Env[e.GetKey()] = string(e.GetValue())
	}
	return s.opts.Behavior(about)
}
