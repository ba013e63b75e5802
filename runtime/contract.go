package runtime

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Runtime is all that an agent asks of a container runtime. Implementations are
// safe for concurrent use.
type Runtime interface {
	Lister
	Inspector
	Syncer
	Killer
	Execer
	Remover
	Checker
}

// Lister lists the pods that a runtime holds.
type Lister interface {
	// ListPods returns every pod that has a sandbox or a container, in any state. The
	// order of the pods is unspecified.
	ListPods(ctx context.Context) ([]*Pod, error)
}

// Inspector describes one pod.
type Inspector interface {
	// InspectPod returns the status of the pod by its UID. It shows the same sandboxes
	// and containers, in the same states, as [Lister.ListPods] would at that
	// moment. A pod that the runtime does not know yields a status without
	// sandboxes and containers, no error.
	InspectPod(ctx context.Context, ref PodRef) (*PodStatus, error)
}

// Syncer makes a pod what its spec says, one step at a time.
type Syncer interface {
	// SyncPod compares the spec with the observed status and does at once all that
	// can be done now: sandbox, image pulls, containers to stop and to start. It
	// returns when that is done, and does not wait for containers to exit or to
	// become ready. It is called for one pod at a time, never twice at once for the
	// same UID. Where some containers fail, the others are still brought forward;
	// the errors are joined, and [SyncResult.Waiting] has the API's reason for each.
	// An error that wraps a [*TerminalError] fails the pod for good.
	// When ctx ends, what is under way may take a few seconds to come to a clean end.
	SyncPod(ctx context.Context, req PodSync) (SyncResult, error)
}

// Killer stops pods.
type Killer interface {
	// KillPod stops the pod's containers in the order the API promises (preStop
	// hook, SIGTERM, SIGKILL after the grace period; sidecars after the main
	// containers in reverse order of their start) and then its sandboxes. It is
	// idempotent, removes nothing, and returns when nothing of the pod runs any
	// more. When ctx ends early the kill may be asked for again with a shorter
	// grace period; what had been signalled is not signalled anew.
	KillPod(ctx context.Context, req PodKill) error
}

// Execer runs commands in containers.
type Execer interface {
	// Exec runs the command in the container without a shell and waits for it. A
	// command that ran and exited with another code than 0 is no error. With a
	// timeout above 0 the command is ended after it, and the error then is
	// [context.DeadlineExceeded].
	Exec(ctx context.Context, id ContainerID, cmd []string, timeout time.Duration) (ExecResult, error)
}

// ExecResult is the outcome of a command.
type ExecResult struct {
	// Output is what the command wrote to stdout, and after it what it wrote to
	// stderr. Runtimes may cut it; containerd does at 16 MiB.
	Output   []byte
	ExitCode int32
}

// Remover removes what is dead. Both methods succeed on what is already gone.
type Remover interface {
	// RemoveContainer removes an exited container and its log; it is an error to
	// name one that runs.
	RemoveContainer(ctx context.Context, id ContainerID) error
	// RemoveSandbox stops the sandbox if need be, and removes it with all its
	// containers.
	RemoveSandbox(ctx context.Context, id string) error
}

// Checker tells whether the runtime is fit to run pods.
type Checker interface {
	// Check returns nil if the runtime answers and says that it and its network
	// are ready; else an error which says what is missing. An error that wraps
	// [ErrUnavailable] says that it did not answer at all; one that wraps
	// [ErrNetworkNotReady], that only the pod network is missing.
	Check(ctx context.Context) error
}

// PodSync is the input of [Syncer.SyncPod].
type PodSync struct {
	// Pod is the desired state, defaulted and validated.
	Pod *v1.Pod
	// Status is the pod as last observed; it must be newer than the end of the
	// last SyncPod for this pod.
	Status *PodStatus
	// Probes is what probes have found; nil means that there are none, so that
	// every running container counts as started, ready and healthy.
	Probes ProbeResults
	// PullSecrets are the pod's image pull secrets.
	PullSecrets []v1.Secret
	// Objects has the secrets and config maps that environment variables refer to.
	// nil: there is no place that could have any.
	Objects Objects
	// Volumes that have been set up for the pod, by their name in the spec.
	Volumes map[string]Volume
	// SubPath makes a path inside a volume ready to be mounted and returns where it
	// is on the host, safe from symbolic links that lead out of the volume. nil
	// means that mounts with a sub-path are refused.
	SubPath func(ctx context.Context, req SubPath) (string, error)
	// Dir is the pod's directory on the host, for what the runtime has to put down
	// for its containers: the hosts file, termination logs, sub-path mounts.
	Dir string
	// Host is what the spec's downward references and its DNS need to know.
	Host *Host
	// Event receives what happens to the pod meanwhile: pulls, starts, failures. nil:
	// events are discarded.
	Event EventFunc
}

// Objects finds secrets and config maps. An error of apimachinery's NotFound kind
// says that there is no such object, so that a reference that is optional counts
// for nothing; any other, that this cannot be told at the moment. What is returned
// is shared and must not be changed.
type Objects interface {
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
}

// SyncResult is what came of a sync.
type SyncResult struct {
	// Changed says that the runtime's state of the pod was changed or may have
	// been, so that a status read before now is out of date.
	Changed bool
	// RetryAfter is the time until a sync has something to do even if nothing
	// changes meanwhile, such as the end of a back-off. 0 means never.
	RetryAfter time.Duration
	// Waiting has, for each container that does not run though it should, why, in
	// the API's words: CrashLoopBackOff, ErrImagePull, CreateContainerConfigError.
	Waiting map[string]v1.ContainerStateWaiting
}

// PodKill is the input of [Killer.KillPod].
type PodKill struct {
	// Pod is the spec, nil if it is gone. Without it the grace period and hooks come
	// from what was recorded when the containers were created.
	Pod *v1.Pod
	// Status is the pod as last observed.
	Status *PodStatus
	// GracePeriod overrides the pod's own, in seconds, if not nil. 0 kills at once.
	GracePeriod *int64
	// Event receives what happens to the pod meanwhile. nil: events are discarded.
	Event EventFunc
}

// Volume is a volume that stands ready on the host.
type Volume struct {
	// HostPath is the directory, file, socket or device that is mounted.
	HostPath string
	// ReadOnly volumes are mounted read-only whatever the mount says.
	ReadOnly bool
	// Relabel asks for the SELinux label of the container.
	Relabel bool
	// Owned says that the volume belongs to the pod alone, so that missing
	// sub-paths may be created in it.
	Owned bool
}

// SubPath names a sub-path of a volume that a container mounts.
type SubPath struct {
	Pod       PodRef
	Container string
	// Index of the mount in the container's volumeMounts.
	Index int
	// VolumeName in the spec, and the volume itself.
	VolumeName string
	Volume     Volume
	// Path is relative to the volume, its variables expanded.
	Path     string
	ReadOnly bool
	// Dir is the pod's directory.
	Dir string
}

// Host is what a pod needs to know of the machine under it. It is a value that
// must not be changed once it was handed out.
type Host struct {
	// NodeName is the name of the node, Hostname that of the machine.
	NodeName string
	Hostname string
	// IPs of the node, the primary one first, then one of the other family.
	IPs []string
	// Allocatable is what resourceFieldRef limits fall back to.
	Allocatable v1.ResourceList
	// ClusterDNS and ClusterDomain serve pods of DNS policy ClusterFirst; without
	// them such pods get the host's resolver, as kubelet does it.
	ClusterDNS    []string
	ClusterDomain string
	// ResolvConf is the path of the host's resolver configuration; "" means that
	// there is none.
	ResolvConf string
	// PodLogsDir is where the runtime writes container logs, as in /var/log/pods.
	PodLogsDir string
}
