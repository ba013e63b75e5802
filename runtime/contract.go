package runtime

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Runtime is a container runtime, as an agent needs it. The package documentation
// lists the duties of an implementation.
type Runtime interface {
	Lister
	Inspector
	Execer
	Remover
	Checker

	// SyncPod compares the spec of the pod with the observed status, does what can be
	// done now, and returns: it makes the sandbox, pulls images, stops, resizes and starts
	// containers. It does not wait until a container exits or becomes ready; the caller
	// calls again with a newer status. The postStart hook of a container runs when the
	// container has started, and before SyncPod returns. If the hook fails, SyncPod stops
	// the container and returns an error.
	//
	// A container that fails does not keep SyncPod from the others. The error joins
	// the errors of all containers, and [SyncResult.Waiting] has the reason of each. An
	// error that wraps a [*TerminalError] fails the pod for good, and one that wraps a [*WaitError]
	// has it wait without a failure. The result is valid also if the error is not nil. If it has no
	// Waiting then, all containers that do not run wait with the text of the error.
	//
	// SyncPod is not called twice at the same time for one UID. When ctx ends, an
	// operation that has begun may take a few seconds to end cleanly.
	SyncPod(ctx context.Context, req PodSync) (SyncResult, error)

	// KillPod stops the containers of the pod in the order that the API documents:
	// preStop hook, SIGTERM, SIGKILL after the grace period; first the main
	// containers, then the sidecars in the reverse order of their start. Then it stops
	// the sandboxes. It returns nil when nothing of the pod runs any more, and removes
	// nothing. A pod that does not run is no error.
	//
	// If ctx ends first, the pod may still run, and the caller may call again with a
	// shorter grace period. KillPod then does not repeat a signal that it has sent.
	KillPod(ctx context.Context, req PodKill) error
}

// Lister lists the pods of a runtime.
type Lister interface {
	// ListPods returns every pod that has a sandbox or a container, in any state. The
	// order of the pods is unspecified. A list is complete: if a part of it cannot be
	// read, ListPods returns an error, because callers take a pod that is missing for a
	// pod that is gone.
	ListPods(ctx context.Context) ([]*Pod, error)
}

// Inspector describes a pod.
type Inspector interface {
	// InspectPod returns the status of the pod with the UID of ref. The name and the
	// namespace of ref are for messages. If the runtime has nothing of the pod, the
	// status has no sandboxes and no containers, and the error is nil.
	InspectPod(ctx context.Context, ref PodRef) (*PodStatus, error)
}

// Execer runs commands in containers.
type Execer interface {
	// Exec runs the command in the container, without a shell, and returns when it has
	// ended. An exit code other than 0 is not an error. If timeout is greater than 0,
	// the command is killed after it, and the error wraps [context.DeadlineExceeded].
	// The error wraps [ErrNotFound] if no such container runs.
	Exec(ctx context.Context, id ContainerID, cmd []string, timeout time.Duration) (ExecResult, error)
}

// ExecResult is the result of a command.
type ExecResult struct {
	// Output is what the command wrote to stdout, followed by what it wrote to stderr.
	// A runtime may cut it, or return an error if there is too much.
	Output   []byte
	ExitCode int32
}

// Remover removes what is dead. Both methods return nil for an ID that does not
// exist.
type Remover interface {
	// RemoveContainer removes a container that does not run, and its log. It returns an
	// error, and changes nothing, if the container runs.
	RemoveContainer(ctx context.Context, id ContainerID) error
	// RemoveSandbox removes the sandbox with all its containers, and stops it first if
	// it is ready.
	RemoveSandbox(ctx context.Context, id string) error
}

// Checker reports whether a runtime is ready to run pods.
type Checker interface {
	// Check returns nil if the runtime and its network are ready, and otherwise an error
	// with what is missing. The error wraps [ErrUnavailable] if the runtime did not
	// answer, and [ErrNetworkNotReady] if only the pod network is missing.
	Check(ctx context.Context) error
}

// PodSync is the input of [Runtime.SyncPod]. Pod, Status, Dir and Host are required.
type PodSync struct {
	// Pod is the desired state, with the API's defaults, validated.
	Pod *v1.Pod
	// Status is the observed state. It was read after the last SyncPod or KillPod of
	// this pod returned, but may be older than an exit, or than a removal by a [Remover]. If
	// it has a sandbox or a container that does not exist any more, SyncPod may fail, or
	// make a new one. The next sync has a newer status.
	Status *PodStatus
	// Probes are the results of the pod's probes. If nil, the pod has no probes: every
	// running container counts as started, ready and healthy.
	Probes ProbeResults
	// EnsureImage makes the image of a container, or of a volume, present, and returns it. It is called concurrently.
	// If it fails, the container waits; see [ImageError]. If nil, it is the function [EnsureImage].
	EnsureImage func(ctx context.Context, req ImageRequest) (*Image, error)
	// Objects returns the secrets and config maps that environment variables refer to. If
	// one that is needed is missing, the container waits with the reason
	// CreateContainerConfigError, and SyncPod returns an error. If nil, a reference that is
	// not optional is an error.
	Objects Objects
	// EditSandbox returns changes of what a sandbox is made with. It is called before a sandbox is made, and for a pod
	// with hostUsers: false also before containers are created in one; if it fails, nothing is made, and the sync
	// fails. An error that wraps a [*WaitError] is returned wrapped, and there is no event. If nil, there are none.
	EditSandbox func(ctx context.Context) (SandboxEdits, error)
	// EditContainer returns changes of what a container is created with. It is called before an instance of
	// the container is created; if it fails, the container waits. An error that wraps a [*WaitError] is returned
	// wrapped, and there is no event. It is called concurrently for different containers. If nil, there are none.
	EditContainer func(ctx context.Context, c *v1.Container) (ContainerEdits, error)
	// Volumes are the volumes that are set up, by their name in the spec.
	Volumes map[string]Volume
	// SubPath prepares a path inside a volume for a mount and returns the path on the
	// host. A symbolic link cannot lead it out of the volume. If nil, a mount with a
	// sub-path is an error.
	SubPath func(ctx context.Context, req SubPath) (string, error)
	// HoldResize means that containers that run keep the resources that they have, since the pod as a whole cannot be
	// given those of its spec now. Those that a resize restarts (RestartContainer) are restarted all the same: what
	// they give back may be what the pod lacks.
	HoldResize bool
	// Dir is the pod's directory on the host. The runtime keeps the pod's hosts file and
	// termination logs in it.
	Dir string
	// Host describes the node, for downward references and DNS.
	Host *Host
	// Event receives the events of this sync: pulls, starts, failures. If nil, they are
	// discarded.
	Event EventFunc
	// Record receives the decisions of this sync and their outcomes: sandboxes, pulls,
	// starts, stops, hooks, back-offs. If nil, they are discarded.
	Record RecordFunc
	// SandboxReady is called when this sync has made a sandbox, before any container is
	// started in it. It must not block. It may be nil.
	SandboxReady func(sandbox SandboxStatus)
}

// Objects returns secrets and config maps. It is safe for concurrent use. The
// objects are shared and read-only.
//
// An error for which apimachinery's errors.IsNotFound is true means that there is no
// such object; an optional reference to it is then ignored. Any other error means that
// this is not known at the moment.
type Objects interface {
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
}

// SyncResult is the result of a sync.
type SyncResult struct {
	// Changed means that the sync has changed the pod in the runtime, or may have. A
	// status that was read before is out of date.
	Changed bool
	// RetryAfter is the time after which another sync has something to do even if
	// nothing changes until then, for example at the end of a back-off. 0 means never.
	RetryAfter time.Duration
	// Waiting has the containers that should run and do not, by name, with the reason in
	// the API's words: CrashLoopBackOff, ErrImagePull, CreateContainerConfigError.
	Waiting map[string]v1.ContainerStateWaiting
	// ResizeError is why containers could not be given other resources, see [ResizeDue]. It
	// is empty if all have them, or nothing was tried. The sync returns an error then, too.
	ResizeError string
}

// PodKill is the input of [Runtime.KillPod]. Status is required.
type PodKill struct {
	// Pod is the spec. If nil, the runtime uses the grace period and the hooks that it
	// recorded when it created the containers.
	Pod *v1.Pod
	// Status is the observed state. Its sandboxes and containers may have ended or been
	// removed since. That is no error. A status with some of the containers and without
	// sandboxes has only these containers stopped.
	Status *PodStatus
	// GracePeriod, in seconds, replaces the pod's own if it is not nil. 0 kills at once.
	GracePeriod *int64
	// Dir is the pod's directory on the host, as in PodSync. In it the runtime records the
	// hooks that have ended. If empty, it records none.
	Dir string
	// Removed means that the pod is not desired any more, or was deleted in the API. Its sandboxes
	// are then removed by [Remover.RemoveSandbox] soon after this call. A runtime may leave a
	// sandbox as it is in this call, and stop it in RemoveSandbox, on two conditions:
	//
	//  1. No other pod needs what the pod has reserved, such as a host port, before that.
	//  2. The runtime reports the sandbox as not ready from this call on.
	Removed bool
	// Event receives the events of this kill, and Record the outcomes of its stops and hooks.
	// If nil, they are discarded.
	Event  EventFunc
	Record RecordFunc
}

// Volume is a volume that is set up on the host.
type Volume struct {
	// HostPath is the directory, file, socket or device to mount. It is empty for a volume of
	// the type image, which the runtime pulls and mounts.
	HostPath string
	// ReadOnly volumes are mounted read-only, whatever the mount requests.
	ReadOnly bool
	// Relabel requests that the files get the container's SELinux label.
	Relabel bool
	// Group is a supplemental group of all containers of the pod, beside those of its spec. nil:
	// the volume needs none.
	Group *int64
}

// SubPath is a sub-path of a volume that a container mounts.
type SubPath struct {
	Pod       PodRef
	Container string
	// Index is the position of the mount in the container's volumeMounts.
	Index int
	// VolumeName is the name of Volume in the spec.
	VolumeName string
	Volume     Volume
	// Path is relative to the volume. Its variables are expanded.
	Path     string
	ReadOnly bool
	// Dir is the pod's directory on the host.
	Dir string
}

// Host describes the node to its pods. It is read-only once it is in use.
type Host struct {
	// NodeName is the name of the node, Hostname the name of the machine.
	NodeName string
	Hostname string
	// IPs are the addresses of the node: the primary one, and then, on a dual-stack
	// node, one of the other family. They are empty while they are unknown. In a call of a
	// runtime they are those at the time of the call.
	IPs []string
	// Allocatable is the value of a resourceFieldRef to a limit that a container does
	// not have.
	Allocatable v1.ResourceList
	// ClusterDNS and ClusterDomain are for pods with DNS policy ClusterFirst. If
	// ClusterDNS is empty, these pods get the resolver of the host, as with kubelet.
	ClusterDNS    []string
	ClusterDomain string
	// ResolvConf is the path of the host's resolver configuration. If empty, there is
	// none.
	ResolvConf string
	// PodLogsDir is the directory for container logs, as in /var/log/pods.
	PodLogsDir string
	// KernelRelease is the release of the kernel, such as "6.8.0-31-generic". If empty, it is
	// unknown, and sysctls that need a recent kernel are not allowed.
	KernelRelease string
	// AppArmor means that AppArmor is enabled. Pods that request a profile are refused
	// otherwise.
	AppArmor bool
	// FileLabel is the SELinux label that the files of containers have by default, such as
	// "system_u:object_r:container_file_t:s0". If it is empty, SELinux is off, or its policy has no label for them.
	FileLabel string
}
