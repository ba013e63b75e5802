package runtime

import "time"

// Record is one line of the history of a pod: a state that was seen, a decision, or the
// outcome of one. It has values, from which a sentence for people can be made. Package
// history keeps records.
//
// Records are comparable. Pod, Stage and Kind are always set. Any other field is zero if
// the record has no such value.
type Record struct {
	Pod   PodRef
	Stage RecordStage
	Kind  RecordKind
	// Source is where a state was seen, or the name of the source of the pod.
	Source RecordSource
	// Container is the name of a container. If empty, the record is about the whole pod.
	Container string
	// Attempt is the restart count of an instance of the container, or the attempt number
	// of a sandbox.
	Attempt uint32
	// ExitCode is the exit code of a container that has exited.
	ExitCode int32
	// Reason is the cause, as one word in CamelCase.
	Reason string
	// Message has details for people, such as the fields of a spec that have changed.
	Message string
	// Error is the text of the error with which an action has failed.
	Error string
	// Duration is how long an action took or an instance ran. In a decision to stop
	// something it is the grace period, in a decision to wait the time. See also
	// [ReasonImageRemoved].
	Duration time.Duration
	// At is the time at which an instance has exited, by the clock of the runtime.
	At time.Time
}

// RecordStage distinguishes states, decisions and outcomes.
type RecordStage string

// The stages of records.
const (
	// StageSeen: the state of a container or of a sandbox has changed.
	StageSeen RecordStage = "Seen"
	// StageDecided: something is to be done, for the Reason of the record.
	StageDecided RecordStage = "Decided"
	// StageDone: an action has ended. If its Error is not empty, it has failed.
	StageDone RecordStage = "Done"
)

// RecordSource is where a state was seen. In records about the spec of a pod, it is the
// name of the source of the pod, such as "file".
type RecordSource string

// The sources of states.
const (
	// SourceEvent: an event of the runtime led to an inspection, which showed the state.
	SourceEvent RecordSource = "Event"
	// SourceRelist: a list of all pods showed the state.
	SourceRelist RecordSource = "Relist"
	// SourceInspection: a worker inspected the pod after a call of its own.
	SourceInspection RecordSource = "Inspection"
)

// RecordKind is the kind of a state, of a decision or of an action.
type RecordKind string

// The kinds of states.
const (
	KindSandboxReady     RecordKind = "SandboxReady"
	KindSandboxDied      RecordKind = "SandboxDied"
	KindContainerRunning RecordKind = "ContainerRunning"
	// KindContainerExited has the exit code, and as the reason the runtime's word, such as
	// "OOMKilled", or [ReasonGone].
	KindContainerExited  RecordKind = "ContainerExited"
	KindContainerUnknown RecordKind = "ContainerUnknown"
	// KindOOMKill: the kernel killed a process of the pod for lack of memory. The message has the
	// process and the limit that was reached.
	KindOOMKill RecordKind = "OOMKill"
	// KindAgentStarted: another agent ran until now.
	KindAgentStarted RecordKind = "AgentStarted"
)

// The kinds of decisions that are no actions of a runtime.
const (
	// KindAdmit and KindRefuse: the pod may run, or may not for the reason and the message.
	KindAdmit  RecordKind = "Admit"
	KindRefuse RecordKind = "Refuse"
	// KindUpdate: a source has changed the pod. The message has the paths of the fields that
	// differ, and the error those of them that do not act on what runs.
	KindUpdate RecordKind = "Update"
	// KindReject: a source has a pod of this name or UID that is not desired, for the reason
	// in the message: it is not valid, or another pod has its name or UID. It says nothing
	// about a pod of that name that runs.
	KindReject RecordKind = "Reject"
	// KindWithdraw: the pod is not desired any more.
	KindWithdraw RecordKind = "Withdraw"
	// KindRecreate: the pod is stopped and started again because the fields in the message
	// have changed.
	KindRecreate RecordKind = "Recreate"
	// KindProbe: the result of a probe has changed. The reason is the kind of the probe. The
	// error is the output of a probe that fails.
	KindProbe RecordKind = "Probe"
	// KindFail: the pod fails for good, with the reason and the message of its status.
	KindFail RecordKind = "Fail"
	// KindWait: the pod does not start before another pod of its full name has ended, or waits, as a whole or with a
	// container, for the reason and the message of a [WaitError].
	KindWait RecordKind = "Wait"
	// KindBackOff: a container, or the pull of its image, waits for the duration. The reason
	// is the waiting reason of the API.
	KindBackOff RecordKind = "BackOff"
)

// The kinds of actions. They have a decision and an outcome.
const (
	KindCreateSandbox RecordKind = "CreateSandbox"
	// KindPullImage has the image as the message. The reason of the decision is
	// [ReasonPullAlways], [ReasonImageAbsent], [ReasonImageRemoved] or
	// [ReasonImageNotPermitted].
	KindPullImage      RecordKind = "PullImage"
	KindStartContainer RecordKind = "StartContainer"
	KindStopContainer  RecordKind = "StopContainer"
	// KindResizeContainer gives a running container other resources. The message of the
	// decision names them.
	KindResizeContainer RecordKind = "ResizeContainer"
	// KindPostStart and KindPreStop are hooks. They have outcomes only.
	KindPostStart RecordKind = "PostStart"
	KindPreStop   RecordKind = "PreStop"
	// KindSync is a call of a worker that has failed. It is repeated. The reason is the phase
	// of the pod. It has outcomes only.
	KindSync RecordKind = "Sync"
	// KindStopPod: nothing of the pod is to run any more.
	KindStopPod RecordKind = "StopPod"
	// KindRemovePod: the pod is not desired, nothing of it runs, and its volumes are taken
	// down. It has an outcome only. After it come only records of what the pod has left behind.
	KindRemovePod RecordKind = "RemovePod"
	// KindEvict: the pod is evicted since the node has too little of something. The reason is the signal, such as
	// "memory.available". The message of the decision has the threshold and the reading, that of the outcome how much
	// more is available.
	KindEvict RecordKind = "Evict"
	// KindRotateLog: the log of the container is rotated, or grows beyond its limit because of the error. It has
	// outcomes only.
	KindRotateLog RecordKind = "RotateLog"
	// KindRemoveCgroup: the cgroup of a pod that is gone is removed, or stays with the
	// error. It has outcomes only.
	KindRemoveCgroup RecordKind = "RemoveCgroup"
)

// The reasons of a [KindPullImage].
const (
	// ReasonPullAlways: the pull policy is Always.
	ReasonPullAlways = "PullAlways"
	// ReasonImageAbsent: the image is not on the node.
	ReasonImageAbsent = "ImageAbsent"
	// ReasonImageRemoved: the image is not on the node, because this agent has removed it
	// when no pod used it. The duration is the time since then.
	ReasonImageRemoved = "ImageRemoved"
	// ReasonImageNotPermitted: the image is on the node, but the pod has not shown that it may use it (KEP-2535).
	ReasonImageNotPermitted = "ImageNotPermitted"
)

// ReasonGone is the reason of a [KindContainerExited] if the runtime does not have the
// instance any more, so that its exit code is not known.
const ReasonGone = "Gone"

// RecordFunc receives records. It must be safe for concurrent use. An agent queues the records for a history of the
// embedder, and does not wait for it. Neither do the packages pleg, podconfig, podworkers and prober. A function that
// is given to another part directly must not block: the part calls it in the goroutine that does the work. A nil
// RecordFunc discards records if it is called through [RecordFunc.Emit].
type RecordFunc func(Record)

// Emit calls f with the record. If f is nil, Emit does nothing.
func (f RecordFunc) Emit(r Record) {
	if f != nil {
		f(r)
	}
}
