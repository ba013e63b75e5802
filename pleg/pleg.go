package pleg

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Generator reports what changed in the runtime. Its methods may be called from
// any goroutine.
type Generator interface {
	// Run generates events until ctx ends and then returns nil, with all that it
	// started joined. A second call returns [runtime.ErrAlreadyRunning].
	Run(ctx context.Context) error
	// Watch returns the channel of events, always the same one. It is meant for one
	// reader, who may be as slow as it likes. It is closed when Run ends; what was
	// not taken by then is discarded, for the first relist of the next run finds it.
	Watch() <-chan PodEvents
	// Healthy returns nil if the generator has made progress lately, else an error
	// that says since when it has not, wrapping the cause if it is known. It has no
	// side effects.
	Healthy() error
}

// Relister is an optional interface of a [Generator]: a generator that lists the
// runtime's pods can do so at once. [Generic] and [Evented] have it. Callers find it
// with [runtime.Optional].
type Relister interface {
	// Relist requests a relist now instead of at the end of the period. It does not
	// block. A relist that begins after the call finds everything that happened before
	// the call; all requests before that beginning share it.
	Relist()
}

// Holder is an optional interface of a [Generator] that inspects pods because the
// runtime reports an event. A worker that changes a pod causes such events itself, and
// reads the status of the pod when it is done; Hold saves the inspections in between.
// [Evented] has it. Callers find it with [runtime.Optional].
type Holder interface {
	// Hold defers inspections of the pod because of events until Release. Relists are
	// not affected. Holds are counted: each Hold needs one Release.
	Hold(uid types.UID)
	// Release ends one Hold. With the last one, the deferred events are handled.
	Release(uid types.UID)
}

// Cache is what a generator needs of [runtime.Cache].
type Cache interface {
	// Now draws a mark.
	Now() runtime.Mark
	// Newer returns a status of the pod that was read after the mark, from memory
	// or by asking the runtime.
	Newer(ctx context.Context, ref runtime.PodRef, after runtime.Mark) (*runtime.PodStatus, error)
	// Seen returns what was read of the pod since it was last asked, the older first:
	// the newest status, and before it the last one that showed something else, also
	// if they are no longer known. An empty UID asks about all pods.
	Seen(uid types.UID) []*runtime.PodStatus
	// ForgetUntil drops what is known of the pod from reads that began no later than
	// the mark, and reports whether nothing newer is known or being read.
	ForgetUntil(uid types.UID, mark runtime.Mark) bool
	// Listed is told of each list of all pods, and of a mark that was drawn before it was
	// read.
	Listed(pods []*runtime.Pod, after runtime.Mark)
}

// PodEvents is what happened to one pod since the reader last took it.
type PodEvents struct {
	Pod runtime.PodRef
	// Events in the order in which they were found, each at most once. The slice
	// belongs to the reader.
	Events []Event
}

// Event is one thing that happened to a container or to a sandbox. What the thing
// is like now is to be read from the cache. Events are comparable.
type Event struct {
	Type Type
	// ContainerID and Name of the container; zero in events of sandboxes.
	ContainerID runtime.ContainerID
	Name        string
	// SandboxID of the sandbox; empty in events of containers.
	SandboxID string
}

// Type says what happened.
type Type string

// The types of events. The names of those about containers are kubelet's.
const (
	// ContainerStarted: the container runs, and did not when last seen.
	ContainerStarted Type = "ContainerStarted"
	// ContainerDied: the container has exited, or is gone and was not known to
	// have exited. A container that is first seen as exited has died too.
	ContainerDied Type = "ContainerDied"
	// ContainerRemoved: the runtime knows the container no more.
	ContainerRemoved Type = "ContainerRemoved"
	// ContainerChanged: the container turned to a state that is neither running nor
	// exited: created, or unknown. It tells of a passing state; kubelet keeps these
	// from its sync loop, and so may a reader.
	ContainerChanged Type = "ContainerChanged"

	// SandboxStarted: the sandbox is ready, and was not when last seen.
	SandboxStarted Type = "SandboxStarted"
	// SandboxDied: the sandbox is no longer ready, or is gone and was not known to
	// have died.
	SandboxDied Type = "SandboxDied"
	// SandboxRemoved: the runtime knows the sandbox no more.
	SandboxRemoved Type = "SandboxRemoved"
)
