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

// Call is a CRI call that the runtime has received. Pod, Container and Image are set if
// the runtime can determine them from the request, for example from an ID that exists.
type Call struct {
	// Seq numbers the calls, from 1.
	Seq int
	// Method is the CRI name, such as "StartContainer".
	Method string
	Pod    runtime.PodRef
	// Container and Image are names as in the spec. ID is the ID of the container or the
	// sandbox, or the image reference in the request.
	Container, Image, ID string
	// Username in the credentials of PullImage.
	Username string
	// Attempt of the container or the sandbox, from 0.
	Attempt uint32
	// Grace is the grace period of StopContainer.
	Grace time.Duration
	// Command of ExecSync and Exec.
	Command []string
	// Began and Ended are its times; Ended is zero while the call is in progress.
	Began, Ended time.Time
	// Err is the error of the call, with its gRPC status.
	Err error
}

// Changes reports whether the call can change the runtime's state. The others only read.
func (c *Call) Changes() bool {
	switch {
	case strings.HasPrefix(c.Method, "List"), strings.HasPrefix(c.Method, "Stream"),
		strings.HasSuffix(c.Method, "Status"),
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
// "namespace/pod" or the image, the grace period or the command, and its status code if
// it has failed.
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

// Transcript returns the calls about the target that can change the runtime's state,
// each as one line.
func (r *Runtime) Transcript(t Target) []string {
	var out []string
	for _, c := range r.Calls(t) {
		if c.Changes() {
			out = append(out, c.String())
		}
	}
	return out
}

// ForgetCalls removes all calls from the record.
func (r *Runtime) ForgetCalls() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.calls, r.s.next = nil, 0
}

// Instance is a container instance that the runtime holds, running or not.
type Instance struct {
	Pod       runtime.PodRef
	Container string
	ID        runtime.ContainerID
	SandboxID string
	Attempt   uint32
	State     runtime.ContainerState
	// The times are zero for events that have not happened.
	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int32
	Reason                           string
	// CPUSet and MemorySet are the CPUs and memory nodes that it may use now, such as "0-3,7"; empty for all.
	CPUSet, MemorySet string
	// CDIDevices are the qualified names of its devices, such as "vendor.com/gpu=0".
	CDIDevices []string
}

// String returns "namespace/pod/container#attempt state", and the exit code if the
// instance has exited.
func (i *Instance) String() string {
	text := fmt.Sprintf("%s/%s/%s#%d %s", i.Pod.Namespace, i.Pod.Name, i.Container, i.Attempt, i.State)
	if i.State == runtime.ContainerExited {
		text += fmt.Sprintf(" (%d)", i.ExitCode)
	}
	return text
}

// Instances returns the matching instances, exited ones too, in the order of their
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
		i := Instance{
			Pod: c.sandbox.pod, Container: c.name(), ID: runtime.ContainerID{Type: s.opts.Name, ID: c.id},
			SandboxID: c.sandbox.id, Attempt: c.config.GetMetadata().GetAttempt(), State: stateWord(c.state),
			CreatedAt: unixTime(c.created), StartedAt: unixTime(c.started), FinishedAt: unixTime(c.finished),
			ExitCode: c.exitCode, Reason: c.reason,
			CPUSet: c.resources.GetCpusetCpus(), MemorySet: c.resources.GetCpusetMems(),
		}
		for _, d := range c.config.GetCDIDevices() {
			i.CDIDevices = append(i.CDIDevices, d.GetName())
		}
		out = append(out, i)
	}
	return out
}

// Running returns the matching instances that run.
func (r *Runtime) Running(t Target) []Instance {
	return slices.DeleteFunc(r.Instances(t), func(i Instance) bool { return i.State != runtime.ContainerRunning })
}

func unixTime(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// ReadySandboxes returns the number of ready sandboxes of the matching pods.
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

// Until returns nil when cond returns true: cond is called at once, and again after each
// change and each call. It may call the other methods of the runtime. When ctx ends
// before, the error lists the instances that the runtime holds.
func (r *Runtime) Until(ctx context.Context, cond func() bool) error {
	return r.s.cond.Until(ctx, cond, func() string {
		var held []string
		for _, i := range r.Instances(Target{}) {
			held = append(held, i.String())
		}
		return cmp.Or(strings.Join(held, ", "), "nothing")
	})
}

// UntilRunning waits until at least n matching instances run, and returns them.
func (r *Runtime) UntilRunning(ctx context.Context, t Target, n int) ([]Instance, error) {
	var running []Instance
	err := r.Until(ctx, func() bool {
		running = r.Running(t)
		return len(running) >= n
	})
	return running, err
}

// UntilStopped waits until no matching instance runs and, unless the target has a
// container or an image, no sandbox of its pods is ready.
func (r *Runtime) UntilStopped(ctx context.Context, t Target) error {
	return r.Until(ctx, func() bool {
		return len(r.Running(t)) == 0 && (t.Container != "" || t.Image != "" || r.ReadySandboxes(t) == 0)
	})
}

// UntilCalled waits for a call of the method about the target to begin, and returns the
// first one in the record.
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
