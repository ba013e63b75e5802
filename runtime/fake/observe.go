package fake

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Call is a call that was made to the runtime. What it is about is given where
// the runtime can tell: the pod of an ID that it knows.
type Call struct {
	// Seq counts the calls, from 1.
	Seq int
	// Method is the CRI name, as in "StartContainer".
	Method string
	Pod    runtime.PodRef
	// Container and Image are names as in the spec. ID is that of the container or the
	// sandbox that the call is about, or the reference of the image that the runtime is
	// asked for.
	Container, Image, ID string
	// Username in the credentials of PullImage.
	Username string
	// Attempt of the container or the sandbox.
	Attempt uint32
	// Grace of StopContainer.
	Grace time.Duration
	// Command of ExecSync and Exec.
	Command []string
	// Began and Ended; the latter is zero while the call is under way.
	Began, Ended time.Time
	// Err is what the caller got, with its gRPC status.
	Err error
}

// Changes reports whether the call may change something. The others only read.
func (c *Call) Changes() bool {
	switch {
	case strings.HasPrefix(c.Method, "List"), strings.HasPrefix(c.Method, "Stream"), strings.HasSuffix(c.Method, "Status"),
		strings.HasSuffix(c.Method, "Stats"):
		return false
	}
	switch c.Method {
	case "Version", "GetContainerEvents", "RuntimeConfig", "ImageFsInfo":
		return false
	}
	return true
}

// String returns the call in one line: its name, "namespace/pod/container" or
// "namespace/pod" or the image, grace period or command, and what it failed with.
func (c *Call) String() string {
	words := []string{c.Method}
	if c.Pod.Name != "" {
		about := c.Pod.Namespace + "/" + c.Pod.Name
		if c.Container != "" {
			about += "/" + c.Container
		}
		words = append(words, about)
	}
	if c.Image != "" && c.Container == "" {
		words = append(words, c.Image)
	}
	if c.Method == "StopContainer" {
		words = append(words, c.Grace.String())
	}
	if len(c.Command) > 0 {
		words = append(words, fmt.Sprintf("%q", c.Command))
	}
	line := strings.Join(words, " ")
	if c.Err != nil {
		line += ": " + status.Code(c.Err).String()
	}
	return line
}

// Calls returns the calls about the target, in the order in which they began.
func (r *Runtime) Calls(t Target) []Call {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Call
	for i := range s.calls {
		c := s.calls[(s.next+i)%len(s.calls)]
		if t.matches(c.Pod, c.Container, c.Image) {
			out = append(out, *c)
		}
	}
	return out
}

// Transcript returns those of [Runtime.Calls] that may change something, each as
// one line.
func (r *Runtime) Transcript(t Target) []string {
	var out []string
	for _, c := range r.Calls(t) {
		if c.Changes() {
			out = append(out, c.String())
		}
	}
	return out
}

// ForgetCalls empties the record of calls.
func (r *Runtime) ForgetCalls() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.calls, r.s.next = nil, 0
}

// Instance is a container instance that the runtime holds.
type Instance struct {
	Pod       runtime.PodRef
	Container string
	ID        runtime.ContainerID
	SandboxID string
	Attempt   uint32
	State     runtime.ContainerState
	// The times are zero for what has not happened.
	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int32
	Reason                           string
}

// String returns "namespace/pod/container#attempt state", and the exit code of
// one that has exited.
func (i *Instance) String() string {
	text := fmt.Sprintf("%s/%s/%s#%d %s", i.Pod.Namespace, i.Pod.Name, i.Container, i.Attempt, i.State)
	if i.State == runtime.ContainerExited {
		text += fmt.Sprintf(" (%d)", i.ExitCode)
	}
	return text
}

// Instances returns the matching instances, dead ones too, in the order of their
// creation.
func (r *Runtime) Instances(t Target) []Instance {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Instance
	for _, c := range s.containers.about(t) {
		if !t.matches(c.sandbox.pod, c.name(), c.image()) {
			continue
		}
		out = append(out, Instance{
			Pod: c.sandbox.pod, Container: c.name(), ID: runtime.ContainerID{Type: s.opts.Name, ID: c.id},
			SandboxID: c.sandbox.id, Attempt: c.config.GetMetadata().GetAttempt(), State: stateWord(c.state),
			CreatedAt: unixTime(c.created), StartedAt: unixTime(c.started), FinishedAt: unixTime(c.finished),
			ExitCode: c.exitCode, Reason: c.reason,
		})
	}
	return out
}

// Running returns those of [Runtime.Instances] that run.
func (r *Runtime) Running(t Target) []Instance {
	return slices.DeleteFunc(r.Instances(t), func(i Instance) bool { return i.State != runtime.ContainerRunning })
}

func unixTime(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// ReadySandboxes returns how many sandboxes of the matching pods are ready.
func (r *Runtime) ReadySandboxes(t Target) int {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	n := 0
	for _, sb := range r.s.sandboxes.about(t) {
		if sb.ready && t.matches(sb.pod, "", "") {
			n++
		}
	}
	return n
}

// Until returns when cond is true: it is asked at once, and again after every
// change and every call. The context's error comes with what the runtime held when
// it ended. cond may use the runtime's other methods.
func (r *Runtime) Until(ctx context.Context, cond func() bool) error {
	return r.s.cond.Until(ctx, cond, func() string {
		var held []string
		for _, i := range r.Instances(Target{}) {
			held = append(held, i.String())
		}
		return cmp.Or(strings.Join(held, ", "), "nothing")
	})
}

// UntilRunning returns when at least n matching instances run, and which.
func (r *Runtime) UntilRunning(ctx context.Context, t Target, n int) ([]Instance, error) {
	var running []Instance
	err := r.Until(ctx, func() bool {
		running = r.Running(t)
		return len(running) >= n
	})
	return running, err
}

// UntilStopped returns when no matching instance runs. If the target names no
// container, no sandbox of its pods is ready then, either.
func (r *Runtime) UntilStopped(ctx context.Context, t Target) error {
	return r.Until(ctx, func() bool {
		return len(r.Running(t)) == 0 && (t.Container != "" || t.Image != "" || r.ReadySandboxes(t) == 0)
	})
}

// UntilCalled returns when a call of the method about the target has begun, as far
// as calls are recorded, and the first one.
func (r *Runtime) UntilCalled(ctx context.Context, method string, t Target) (Call, error) {
	var found Call
	err := r.Until(ctx, func() bool {
		for _, c := range r.Calls(t) {
			if c.Method == method {
				found = c
				return true
			}
		}
		return false
	})
	return found, err
}
