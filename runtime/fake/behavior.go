package fake

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Target selects the pods and containers that a script, a fault or a query is about.
// An empty field matches anything, so the zero value matches everything.
type Target struct {
	Namespace, Pod string
	UID            types.UID
	// Container is the name in the spec. With it, calls about a whole pod do not match.
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

// Behavior is what a container instance does. The zero value runs until it is stopped,
// and exits at once with code 143 when it receives the stop signal.
type Behavior struct {
	// StartDelay is the duration of StartContainer.
	StartDelay time.Duration
	// StartErr makes StartContainer fail. The instance has then exited with code 128
	// and reason StartError, as in containerd.
	StartErr error

	// RunFor is the time from its start until it exits by itself. 0: never.
	RunFor time.Duration
	// ExitCode is the code when it exits by itself.
	ExitCode int32
	// OOM makes it exit as if the kernel had killed it for lack of memory: code 137,
	// reason OOMKilled.
	OOM bool

	// StopDelay is the time from the stop signal until it exits.
	StopDelay time.Duration
	// StopsClean makes it exit with code 0 after the stop signal, instead of 143.
	StopsClean bool
	// IgnoresStop makes it ignore the stop signal. It is killed at the end of the grace
	// period.
	IgnoresStop bool
	// Unkillable makes it survive SIGKILL too, as a process that hangs in the kernel.
	// Calls that stop it or its sandbox return only when their context ends, until
	// [Runtime.Exit] ends the instance.
	Unkillable bool

	// Output is written to the log when it starts, line by line.
	Output string
	// Uses is its resource usage while it runs.
	Uses Usage
	// TerminationMessage is written when it exits by itself.
	TerminationMessage string

	// Exec runs commands in the container. An error of it is the error of the call.
	// nil: every command succeeds without output.
	Exec func(ctx context.Context, cmd []string) (runtime.ExecResult, error)
	// Session is the container's end of the streams of exec and attach, see
	// [Runtime.RunSession]; it returns the exit code of the command. ctx ends with the
	// container. nil: Exec answers a command, and an attached client receives nothing
	// until the container ends.
	Session func(ctx context.Context, s Session) (exitCode int32, err error)
}

// Exits returns the behavior of a container that exits by itself with the code, the
// given time after its start.
func Exits(after time.Duration, code int32) Behavior {
	return Behavior{RunFor: max(after, 1), ExitCode: code}
}

// Times returns a sequence for [Runtime.Script]: n times b, and then the others, or the
// zero value if there are none. Times(3, Exits(0, 1)) crashes three times and then
// runs.
func Times(n int, b Behavior, then ...Behavior) []Behavior {
	if len(then) == 0 {
		then = []Behavior{{}}
	}
	return slices.Concat(slices.Repeat([]Behavior{b}, n), then)
}

// script has the behaviors of successive instances of some containers.
type script struct {
	target   Target
	sequence []Behavior
	// started counts the instances of each container that have used the script.
	started map[containerKey]int
}

type containerKey struct {
	uid  types.UID
	name string
}

// Script sets the behaviors of the next instances of the containers. Each container
// runs through the sequence by itself, and repeats the last behavior. Of several
// scripts for a container the newest applies. A script replaces the one for the same
// target; an empty sequence removes it.
//
// Instances that have started before keep their behavior; see [Runtime.Exit].
func (r *Runtime) Script(t Target, sequence ...Behavior) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts = slices.DeleteFunc(s.scripts, func(old *script) bool { return old.target == t })
	if len(sequence) > 0 {
		s.scripts = append(s.scripts, &script{t, slices.Clone(sequence), map[containerKey]int{}})
	}
}

// scripted returns the behavior of the next instance of a container from its script,
// if it has one, and advances the script. mu is held.
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

// behaviorOf returns the behavior of an instance that is about to start. mu must not be
// held: it may call Options.Behavior.
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
