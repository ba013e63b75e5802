package runtime

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// ContainerState is the state of one container instance.
type ContainerState string

// The states of a container instance, as CRI knows them.
const (
	ContainerCreated ContainerState = "created"
	ContainerRunning ContainerState = "running"
	ContainerExited  ContainerState = "exited"
	ContainerUnknown ContainerState = "unknown"
)

// SandboxState is the state of a pod sandbox.
type SandboxState string

// The states of a sandbox, as CRI knows them.
const (
	SandboxReady    SandboxState = "ready"
	SandboxNotReady SandboxState = "not-ready"
)

// Pod is a pod as a runtime lists it: what exists and in which state, and
// nothing that costs a call for each container.
type Pod struct {
	PodRef
	// Sandboxes of the pod, the newest first.
	Sandboxes []Sandbox
	// Containers of the pod in all its sandboxes, the newest first.
	Containers []Container
}

// Sandbox is a sandbox as a runtime lists it.
type Sandbox struct {
	ID        string
	Attempt   uint32
	State     SandboxState
	CreatedAt time.Time
}

// Container is a container instance as a runtime lists it.
type Container struct {
	ID        ContainerID
	Name      string
	SandboxID string
	State     ContainerState
	CreatedAt time.Time
	// Hash is the hash of the spec that the instance was made from, see
	// [ContainerHash]; 0 if the runtime does not know it.
	Hash uint64
}

// Running reports whether a container of the pod is running or may be, or a
// sandbox of it is ready: whether there is still something to stop.
func (p *Pod) Running() bool {
	for i := range p.Sandboxes {
		if p.Sandboxes[i].State == SandboxReady {
			return true
		}
	}
	for i := range p.Containers {
		if s := p.Containers[i].State; s == ContainerRunning || s == ContainerUnknown {
			return true
		}
	}
	return false
}

// PodStatus is what the runtime says of one pod when asked in detail. It is
// immutable once it was returned: it is shared between readers.
type PodStatus struct {
	PodRef
	// Mark orders reads of the same [Cache]: it was drawn before the runtime was
	// asked, so everything that happened before the mark was drawn is in the
	// status. It is 0 in a status that no cache has seen.
	Mark Mark
	// IPs of the newest ready sandbox; empty with the host's network.
	IPs []string
	// Sandboxes of the pod, the newest first.
	Sandboxes []SandboxStatus
	// Containers of the pod, all instances that the runtime still knows, the
	// newest first.
	Containers []ContainerStatus
}

// SandboxStatus is a sandbox in detail.
type SandboxStatus struct {
	Sandbox
	// IPs of the sandbox, the primary one first; empty with the host's network.
	IPs []string
	// HostNetwork says that the sandbox uses the network of the host.
	HostNetwork bool
	// HostIPC says that the sandbox uses the IPC namespace of the host. It counts
	// only where PID is known.
	HostIPC bool
	// PID is whose processes the containers see; "" where the runtime does not tell.
	PID PIDNamespace
	// RuntimeHandler that the sandbox was created with; "" is the default one.
	RuntimeHandler string
	Labels         map[string]string
	Annotations    map[string]string
}

// PIDNamespace is whose processes a container sees.
type PIDNamespace string

// The process namespaces that a spec can ask for.
const (
	PIDContainer PIDNamespace = "container" // its own
	PIDPod       PIDNamespace = "pod"       // those of all containers of the pod
	PIDHost      PIDNamespace = "host"
)

// ContainerStatus is a container instance in detail.
type ContainerStatus struct {
	Container
	StartedAt  time.Time // zero before it was started
	FinishedAt time.Time // zero before it has exited
	ExitCode   int32
	// Image is the name by which the image was asked for, ImageRef the digested
	// reference and ImageID the ID that it was resolved to.
	Image, ImageRef, ImageID string
	// RestartCount is how many instances there were before this one.
	RestartCount int32
	// Reason is the runtime's word for the state, as in "Completed", "Error" or
	// "OOMKilled"; Message is what the container left as its termination message,
	// or what the runtime had to say.
	Reason, Message string
	// LogPath is the file that the runtime writes the instance's output to.
	LogPath string
	// GracePeriod is the termination grace period that the instance was created
	// with, in seconds; nil where it was not recorded. With PreStop and Ports it
	// lets a container be stopped decently when its pod's spec is gone.
	GracePeriod *int64
	PreStop     *v1.LifecycleHandler
	Ports       []v1.ContainerPort
	// User is who the first process runs as; nil where the runtime does not tell.
	User *v1.ContainerUser
	// StopSignal is the signal that stops the container; nil where the runtime
	// does not tell.
	StopSignal *v1.Signal
	// Resources that are in force; nil where the runtime does not tell.
	Resources *v1.ResourceRequirements
	// Mounts that were made into the container, in the runtime's order.
	Mounts []Mount
}

// Mount is one mount in a container as the runtime reports it.
type Mount struct {
	HostPath          string
	ContainerPath     string
	ReadOnly          bool
	RecursiveReadOnly bool
}

// Newest returns the newest instance of the named container, or nil.
func (s *PodStatus) Newest(name string) *ContainerStatus {
	if s == nil {
		return nil
	}
	for i := range s.Containers {
		if s.Containers[i].Name == name {
			return &s.Containers[i]
		}
	}
	return nil
}

// ByID returns the instance with the given ID, or nil.
func (s *PodStatus) ByID(id ContainerID) *ContainerStatus {
	if s == nil {
		return nil
	}
	for i := range s.Containers {
		if s.Containers[i].ID == id {
			return &s.Containers[i]
		}
	}
	return nil
}

// ReadySandbox returns the newest sandbox if it is ready, else nil.
func (s *PodStatus) ReadySandbox() *SandboxStatus {
	if s == nil || len(s.Sandboxes) == 0 || s.Sandboxes[0].State != SandboxReady {
		return nil
	}
	return &s.Sandboxes[0]
}

// Running reports whether anything of the pod is left to stop: a container that
// runs, or may run for all the runtime knows, or a sandbox that is ready.
func (s *PodStatus) Running() bool {
	if s == nil {
		return false
	}
	for i := range s.Sandboxes {
		if s.Sandboxes[i].State == SandboxReady {
			return true
		}
	}
	return s.ContainersRunning()
}

// ContainersRunning reports whether a container of the pod runs, or may run for
// all the runtime knows.
func (s *PodStatus) ContainersRunning() bool {
	if s == nil {
		return false
	}
	for i := range s.Containers {
		if st := s.Containers[i].State; st == ContainerRunning || st == ContainerUnknown {
			return true
		}
	}
	return false
}
