package runtime

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// ContainerState is the state of one container instance.
type ContainerState string

// The states of a container instance. They are those of CRI.
const (
	ContainerCreated ContainerState = "created"
	ContainerRunning ContainerState = "running"
	ContainerExited  ContainerState = "exited"
	ContainerUnknown ContainerState = "unknown"
)

// SandboxState is the state of a pod sandbox.
type SandboxState string

// The states of a sandbox. They are those of CRI.
const (
	SandboxReady    SandboxState = "ready"
	SandboxNotReady SandboxState = "not-ready"
)

// Pod is a pod as a runtime lists it: what exists, and in which state. It has nothing
// that costs a call for each container.
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
	// Hash is the podspec.ContainerHash of the spec that the instance was created from. It is 0
	// if the runtime has not kept it.
	Hash uint64
}

// Running reports whether there is something to stop: a container that runs, a
// container in an unknown state, or a sandbox that is ready.
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

// PodStatus is a pod as a runtime describes it in detail. It is shared between readers
// and read-only.
type PodStatus struct {
	PodRef
	// Mark orders the reads of one [Cache]. The cache draws it before the read, so the
	// status shows everything that happened before the mark was drawn. It is 0 in a status
	// that does not come from a cache.
	Mark Mark
	// IPs are the addresses of the newest ready sandbox. They are empty if the pod uses
	// the host's network.
	IPs []string
	// Resources are those in force for the pod as a whole, with its overhead, without requests of memory. It is nil if
	// they are not known: a component of the agent that holds them adds them, see lifecycle.InspectionWrapper.
	Resources *v1.ResourceRequirements
	// Sandboxes of the pod, the newest first.
	Sandboxes []SandboxStatus
	// Containers are all instances of the pod's containers that the runtime still has,
	// the newest first.
	Containers []ContainerStatus
}

// SandboxStatus is a sandbox in detail.
type SandboxStatus struct {
	Sandbox
	// IPs are the addresses of the sandbox, the primary one first. They are empty if it
	// uses the host's network.
	IPs []string
	// AddressUnknown means that the sandbox may have addresses, but IPs does not have them:
	// the runtime does not handle its network, or reports an address that is not valid.
	AddressUnknown bool
	// HostNetwork means that the sandbox uses the network of the host.
	HostNetwork bool
	// HostIPC means that the sandbox uses the IPC namespace of the host. It is valid only
	// if PID is not empty.
	HostIPC bool
	// PID is the process namespace of the containers. It is empty if the runtime does
	// not report it.
	PID podspec.PIDNamespace
	// UserNamespace is the user namespace of the sandbox. It is nil if the sandbox uses that of the host, or the
	// runtime does not report it.
	UserNamespace *UserNamespace
	// RuntimeHandler is the runtime handler of the sandbox. Empty is the default one.
	RuntimeHandler string
	Labels         map[string]string
	Annotations    map[string]string
}

// LacksAddress reports whether the sandbox has a network of its own without an address, so
// that its containers cannot be reached.
func (s *SandboxStatus) LacksAddress() bool {
	return len(s.IPs) == 0 && !s.HostNetwork && !s.AddressUnknown
}

// ContainerStatus is a container instance in detail.
type ContainerStatus struct {
	Container
	StartedAt  time.Time // zero before it was started
	FinishedAt time.Time // zero before it has exited
	ExitCode   int32
	// Image is the name of the image in the spec. ImageRef is the reference with a digest
	// that it was resolved to, ImageID the runtime's ID.
	Image, ImageRef, ImageID string
	// RestartCount is the number of instances before this one.
	RestartCount int32
	// Backoff is the time that the successor of this instance waits after its exit, as
	// recorded when the instance was created; 0 if none was recorded. So an agent that is
	// restarted does not restart crash loops.
	Backoff time.Duration
	// Reason is the runtime's word for the state, such as "Completed", "Error" or
	// "OOMKilled". Message is the termination message of the container, or a message of
	// the runtime.
	Reason, Message string
	// LogPath is the file to which the runtime writes the output of the instance.
	LogPath string
	// GracePeriod is the termination grace period, in seconds, that the instance was
	// created with. It is nil if it was not recorded. With GracePeriod, PreStop and Ports,
	// a container can be stopped as its spec requests when the spec is gone.
	GracePeriod *int64
	PreStop     *v1.LifecycleHandler
	Ports       []v1.ContainerPort
	// User is the user of the first process. StopSignal is the signal that stops the
	// container. Resources are the ones in force; a request of memory among them is the memory that
	// the cgroup protects. Each is nil if the runtime does not report it.
	User       *v1.ContainerUser
	StopSignal *v1.Signal
	Resources  *v1.ResourceRequirements
	// ResizeHash is the podspec.ResizeHash that the instance was created with; 0 if it had none.
	ResizeHash uint64
	// Mounts are the mounts of the container, in the runtime's order.
	Mounts []Mount
}

// Mount is a mount of a container, as the runtime reports it.
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

// Running reports whether there is something to stop: a container that runs, a
// container in an unknown state, or a sandbox that is ready.
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

// ContainersRunning reports whether a container of the pod runs or is in an unknown
// state.
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
