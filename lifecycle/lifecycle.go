package lifecycle

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Component joins the life of pods. It implements at least one of the interfaces of the steps:
// [Admitter], [Preparer], [SandboxEditor], [ContainerEditor], [RunningHandler], [StoppedHandler], [EndedHandler],
// [RefusalHandler], [GoneHandler], [StatusEditor], [StatusHandler] and [InspectionWrapper], or is a [Runner], a
// [Joiner], a [NodeReadyChecker] or a [NodeStatusHandler]. A component that wraps another one embeds its concrete type,
// because a value in an interface hides the steps that the interface does not have.
type Component interface {
	// Name is the name of the component in errors, logs and the [Order] of others, such as "serial ports". It does not
	// change. No two components have the same; those of the agent are "volumes", "pull secrets", "service variables",
	// "security" and "limits".
	Name() string
}

// Runner is a component with work of its own.
type Runner interface {
	Component
	// Run works until ctx ends. It is called once, when the agent runs. If it returns an error before that, the agent
	// stops with it.
	Run(ctx context.Context) error
}

// Admitter decides whether a pod may run on the node.
type Admitter interface {
	Component
	// Admit is called when a pod is added, also for a pod that an earlier agent has started, and when
	// a pod has requested other resources. It is called from one goroutine, and must not block:
	// no other pod is handled meanwhile.
	//
	// An error that wraps a [*runtime.TerminalError] refuses the pod with that reason and message, see [Refuse]; any
	// other error refuses it with the reason UnexpectedAdmissionError, as in kubelet. A refused pod becomes
	// Failed and is not admitted again until its source removes and adds it. A refused resize is
	// deferred: the pod continues with the resources that it holds, and Admit is called again at each
	// housekeeping. If the reason is v1.PodReasonInfeasible, it is not called again.
	//
	// The response says what the pod costs others. It takes effect only if all components admit the pod.
	Admit(req AdmitRequest) (AdmitResponse, error)
}

// AdmitRequest is the input of an [Admitter]. All of it is shared and read-only.
type AdmitRequest struct {
	// Pod is the pod that is to run.
	Pod *v1.Pod
	// Held is the pod with the resources that it holds, if it runs and is to be resized (KEP-1287). It is
	// nil if the pod was added.
	Held *v1.Pod
	// Active are the pods that hold resources of the node, without Pod.
	Active []*v1.Pod
	// Host is the machine. It may be nil.
	Host *runtime.Host
}

// AdmitResponse is the output of an [Admitter]. The zero value costs others nothing.
type AdmitResponse struct {
	// Evict are pods of AdmitRequest.Active that end so that the pod can run. Those that are ending already are not
	// told again. No container of the pod starts before theirs have ended, or one and a half of the longest of their
	// grace periods has passed, at least 10 s.
	Evict []Preemption
}

// Preemption is the end of a pod that an [Admitter] requests for another pod. The pod that ends becomes Failed.
type Preemption struct {
	Pod *v1.Pod
	// Reason is one word in CamelCase, and Message is for people. They are those of the status of the pod.
	Reason, Message string
	// GracePeriod is in seconds; nil means that of the pod.
	GracePeriod *int64
	// Resource is what the pod that is admitted lacks, for metrics. It may be empty.
	Resource v1.ResourceName
}

// The reason and the message of kubelet's event about a pod that was to end for others, or for the node, and has not
// ended in one and a half of its grace period.
const (
	ReasonExceededGracePeriod  = "ExceededGracePeriod"
	MessageExceededGracePeriod = "Container runtime did not kill the pod within specified grace period."
)

// RefusalHandler takes back what pods were given that are refused.
type RefusalHandler interface {
	Component
	// Refused is called when a pod was refused, by any component or by the agent, and nothing of it runs. What the
	// component has given the pod is free again, also in an earlier agent. Ended is not called for such a pod; it
	// follows if the pod runs and has to be stopped. Refused is idempotent. It is called from the goroutine of Admit,
	// and must not block. A panic is logged.
	Refused(pod *v1.Pod)
}

// Refuse returns the error of an [Admitter] that refuses a pod. The reason is one word in CamelCase, the
// message is for people.
func Refuse(reason, message string) error {
	return &runtime.TerminalError{Reason: reason, Message: message}
}

// Wait returns the error of a step that must wait, a [*runtime.WaitError], which may be wrapped: [Preparer],
// [SandboxEditor] and [ContainerEditor] can return it. The reason is one word in CamelCase, the message is for people;
// both are in the status of the containers that wait, and in one event of the type Normal with that reason. The message
// of one wait does not change. The step is called again when the pod is
// synced: the component requests that by [Node].Sync when it need not wait any more. The usual
// resync, about once a minute, calls it again, too.
func Wait(reason, message string) error {
	return &runtime.WaitError{Reason: reason, Message: message}
}

// Preparer makes ready what a pod needs before its sandbox is made.
type Preparer interface {
	Component
	// Prepare is called in each sync of the pod, before the runtime is called: before the first sandbox, after
	// each change, and after a restart of the agent. It returns soon if everything is ready. Syncs of a pod to which
	// nothing happens become rare, see podworkers.Result: a component that looks for changes itself returns RetryAfter.
	// ctx ends when the sync returns or the pod is to end.
	//
	// An error keeps containers that do not run from starting: they wait with the reason ContainerCreating or
	// PodInitializing, as in kubelet, and the text of the error is their message. Containers that run continue to run.
	// Prepare is repeated after a back-off. An error that wraps a [*runtime.TerminalError] fails the pod for good, and
	// the error of [Wait] has the pod wait without a failure; then RetryAfter of the response counts. Components after
	// this one are not called in this sync, except in the first Prepare of a pod that runs when the agent starts.
	Prepare(ctx context.Context, req PrepareRequest) (PrepareResponse, error)
}

// PrepareRequest is the input of a [Preparer]. All of it is shared and read-only.
type PrepareRequest struct {
	Pod *v1.Pod
	// Observed is the state of the pod in the runtime, as it was read before this sync.
	Observed *runtime.PodStatus
	// Dir is the directory of the pod on the host. It exists.
	Dir string
}

// PrepareResponse is the output of a [Preparer]. Those of all components are merged.
type PrepareResponse struct {
	// Volumes are volumes that are ready, by their names in the spec. They replace those of earlier components. A
	// volume of a type that the agent does not know needs a volume.Plugin: the agent's component comes first, and
	// refuses it.
	Volumes map[string]runtime.Volume
	// PullSecrets are image pull secrets.
	PullSecrets []v1.Secret
	// RetryAfter is the time after which Prepare has something to do even if nothing
	// changes; 0 means never.
	RetryAfter time.Duration
	// Changed means that the component has changed what is observed of the pod. The pod is inspected and synced again
	// after this sync. A component that gives the pod more before its containers are resized, and less after them, does
	// the latter in the next sync: a sync that resizes containers has one.
	Changed bool
	// ResizeError is why the pod cannot be given the resources of its spec, if it is to be resized (KEP-1287,
	// KEP-5419). It is the message of the condition PodResizeInProgress. Containers that run keep the resources that
	// they have, others start, those that a resize restarts too, and the sync is repeated after a back-off. "" means
	// that the component is ready for the containers.
	ResizeError string
}

// SandboxEditor changes what sandboxes are made with.
type SandboxEditor interface {
	Component
	// EditSandbox is called before a sandbox of the pod is made. An error keeps the sandbox from
	// being made, and is handled like that of Prepare, also that of [Wait].
	EditSandbox(ctx context.Context, pod *v1.Pod) (runtime.SandboxEdits, error)
}

// ContainerEditor changes what containers are made with.
type ContainerEditor interface {
	Component
	// EditContainer is called before an instance of a container is created. An error keeps it from being
	// created: it waits with the reason CreateContainerConfigError, and the call is repeated after a back-off.
	// Containers of one pod may be created concurrently. It is also called before a running container is resized: of
	// its edits only Unified and NoCPUQuota count then, an error postpones the resize, and [runtime.ForResize] of ctx
	// is true. The error of [Wait] has the container wait without a failure.
	EditContainer(ctx context.Context, pod *v1.Pod, container *v1.Container) (runtime.ContainerEdits, error)
}

// RunningHandler receives the IDs of containers that run.
type RunningHandler interface {
	Component
	// Running is called in the first sync that observes that a container runs which did not run in the sync before,
	// also after a restart of the agent. A container that ends soon may be missing. An error is reported, and the call
	// is repeated after a back-off; the container continues to run.
	Running(ctx context.Context, pod *v1.Pod, observed *runtime.PodStatus) error
}

// StoppedHandler receives pods that have stopped, before anybody sees it in their status.
type StoppedHandler interface {
	Component
	// Stopped is called when nothing of the pod runs any more and nothing will be started, before the phase of the pod
	// shows that. It is for what others take back as soon as they see the phase, as Kubernetes does with resource
	// claims. It is repeated after a back-off until it returns nil; the phase waits for it. Ended follows, and may be
	// the only call.
	Stopped(ctx context.Context, req EndedRequest) error
}

// EndedHandler receives the ends of pods.
type EndedHandler interface {
	Component
	// Ended is called when nothing of the pod runs any more and nothing will be started, before the
	// status of the pod becomes final. It may be the only call for a pod. It is repeated after a back-off until it
	// returns nil. The status waits for it, and so does a pod with the same full name.
	Ended(ctx context.Context, req EndedRequest) error
}

// EndedRequest is the input of an [EndedHandler] and of a [StoppedHandler].
type EndedRequest struct {
	Pod *v1.Pod
	// Observed is the state of the pod in the runtime.
	Observed *runtime.PodStatus
	// Dir is the directory of the pod on the host. It may be missing.
	Dir string
}

// GoneHandler removes what is left of pods.
type GoneHandler interface {
	Component
	// Gone is called when the pod is not desired and has no worker. After a restart of the agent it is also called for
	// pods of which only a directory is left; then only the UID of the pod is known. It is repeated with each
	// housekeeping until it returns nil. A pod with the same UID may be admitted before that, and does not start. The
	// last component to be called is the agent's for volumes. It removes the directory of the pod, by
	// volume.Manager.Remove.
	Gone(ctx context.Context, req GoneRequest) error
}

// GoneRequest is the input of a [GoneHandler].
type GoneRequest struct {
	// Pod has the UID, and the name and namespace if they are known.
	Pod runtime.PodRef
	// Dir is the directory of the pod on the host. It may be missing.
	Dir string
}

// StatusEditor adds to the API status of pods, such as the health of devices.
type StatusEditor interface {
	Component
	// EditStatus is called each time that the status of the pod is generated, concurrently with other steps of the pod.
	// It adds to the status, which belongs to the caller. It must not block. [Node].RefreshStatus has the
	// status generated again. A panic is logged.
	EditStatus(pod *v1.Pod, status *v1.PodStatus)
}

// StatusHandler is a component that follows the API status of pods.
type StatusHandler interface {
	Component
	// StatusChanged is called when [Node].PodStatus of the pod may have another result, and when the pod has finished
	// or is gone. It must not block, and is called concurrently. A panic is logged.
	StatusChanged(uid types.UID)
}

// InspectionWrapper adds to what the runtime reports of pods, such as why a container has ended.
type InspectionWrapper interface {
	Component
	// Inspector returns an inspector around the given one. It is called once, when the agent is made. The statuses of
	// the inner one are shared: an inspector changes copies. It is called for each inspection of each pod,
	// concurrently, and returns soon. It has a method Unwrap() any that returns the inner one, see [runtime.Optional].
	Inspector(inner runtime.Inspector) runtime.Inspector
}
