package pleg

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Generator reports what has changed in the runtime. Its methods are safe for concurrent
// use. The suite in pleg/plegtest tests the contract.
type Generator interface {
	// Run generates events until ctx ends. It returns nil when all goroutines that it has
	// started have ended. A second call returns an error that wraps
	// [runtime.ErrAlreadyRunning].
	Run(ctx context.Context) error
	// Watch returns the channel of events, which is always the same. It is meant for one
	// reader, which may be slow. It is closed when Run ends. Events that were not received
	// by then are discarded: the first relist of the next generator finds the pods again.
	Watch() <-chan PodEvents
	// Healthy returns nil if the generator has made progress lately. Otherwise it returns
	// an error with the time since the last progress, which wraps the cause if there is
	// one. Healthy has no side effects.
	Healthy() error
	// Relist requests that changes are found now instead of at the end of the period. It
	// does not block. The next relist that begins serves all requests before it.
	Relist()
	// Hold defers inspections of the pod because of events of the runtime until Release.
	// A worker that changes a pod causes such events itself, and reads the status of the
	// pod when it is done, so Hold saves the inspections in between. Relists are not
	// affected. Holds are counted: each Hold needs one Release.
	Hold(uid types.UID)
	// Release ends one Hold. With the last one, the deferred events are handled.
	Release(uid types.UID)
}

// Base implements the methods of a [Generator] that it may do without: Healthy returns
// nil, and Relist, Hold and Release do nothing. A generator that embeds it implements Run
// and Watch. Methods that are added to Generator later have an implementation here, too.
type Base struct{}

// Healthy returns nil.
func (Base) Healthy() error { return nil }

// Relist does nothing. That is enough if the generator finds changes soon by itself.
func (Base) Relist() {}

// Hold does nothing. That costs inspections of pods while they are being changed.
func (Base) Hold(types.UID) {}

// Release does nothing.
func (Base) Release(types.UID) {}

// PodEvents are the events of one pod since the reader last received any.
type PodEvents struct {
	Pod runtime.PodRef
	// Events in the order in which they were found, each at most once. The slice
	// belongs to the reader.
	Events []Event
}

// Event is a change of the state of a container or a sandbox. The state itself is in the
// cache. Events are comparable.
type Event struct {
	Type Type
	// ContainerID and Name are the ID and name of the container. They are zero in events
	// of sandboxes.
	ContainerID runtime.ContainerID
	Name        string
	// SandboxID is empty in events of containers.
	SandboxID string
}

// Type is the kind of an event.
type Type string

// The types of events. The names of those about containers are kubelet's.
const (
	// ContainerStarted: the container runs, and did not run in the view before.
	ContainerStarted Type = "ContainerStarted"
	// ContainerDied: the container has exited, or is gone and no view showed it as exited.
	// A container whose first view is exited has died, too.
	ContainerDied Type = "ContainerDied"
	// ContainerRemoved: the runtime no longer has the container.
	ContainerRemoved Type = "ContainerRemoved"
	// ContainerChanged: the container has a new state that is neither running nor exited:
	// created or unknown. Kubelet does not pass this event to its sync loop, and a reader
	// may ignore it, because another state follows.
	ContainerChanged Type = "ContainerChanged"

	// SandboxStarted: the sandbox is ready, and was not ready in the view before.
	SandboxStarted Type = "SandboxStarted"
	// SandboxDied: the sandbox is no longer ready, or is gone and the view before showed it
	// as ready.
	SandboxDied Type = "SandboxDied"
	// SandboxRemoved: the runtime no longer has the sandbox.
	SandboxRemoved Type = "SandboxRemoved"
)
