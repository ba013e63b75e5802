package podconfig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Config is the stream of the pods that should run on the node. [Mux] is the default.
// Implementations are safe for concurrent use. They embed [Base], or the Config that they
// wrap, so that methods added later do not break them.
type Config interface {
	// Run produces the stream until ctx ends, then closes the channel of Changes and
	// returns nil. A second call returns an error that wraps
	// [runtime.ErrAlreadyRunning].
	Run(ctx context.Context) error
	// Changes returns the stream of changes, which has one reader. The package
	// documentation lists its guarantees.
	Changes() <-chan Change
	// SourcesReady reports whether the reader has received the pods of all sources. While it
	// is true, a pod that is not in the stream is not desired. It may become false again
	// when a source is added or removed.
	SourcesReady() bool
	// Add registers a source, and runs it if the Config runs. The error wraps
	// [errors.ErrUnsupported] if the sources cannot change.
	Add(source Source) error
	// Remove removes the source of that name with its pods, and reports whether there
	// was one. It returns after the source's Run has returned.
	Remove(name string) bool
	// Sources returns the registered sources in the order in which they were added.
	Sources() []SourceState
	// Freeze ignores all deliveries of all sources from now on, for an agent that runs
	// one snapshot of its pods.
	Freeze()
}

// SourceState is the state of a registered source.
type SourceState struct {
	Name string
	// Seen is true when the source has delivered a snapshot and the reader has received
	// all changes that followed from it.
	Seen bool
	// Rejected are the pods that the source has delivered and that are not desired, sorted by name: those that are not
	// valid, and those that wait for another pod of their UID or full name. Those of [Sink].Reject are not among them.
	Rejected []Rejection
}

// Rejection is a pod that a source has delivered and that is not desired.
type Rejection struct {
	Pod runtime.PodRef
	Err error
	// Since is when the pod was first rejected for this reason.
	Since time.Time
}

// Base is a [Config] without sources and without pods, to be embedded.
type Base struct{}

var _ Config = Base{}

// Run implements [Config]: it waits until ctx ends.
func (Base) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Changes implements [Config]: there are none. The channel is nil.
func (Base) Changes() <-chan Change { return nil }

// SourcesReady implements [Config]: it returns true.
func (Base) SourcesReady() bool { return true }

// Add implements [Config]: it returns an error that wraps [errors.ErrUnsupported].
func (Base) Add(Source) error {
	return fmt.Errorf("this pod configuration takes no further sources: %w", errors.ErrUnsupported)
}

// Remove implements [Config]: it returns false.
func (Base) Remove(string) bool { return false }

// Sources implements [Config]: there are none.
func (Base) Sources() []SourceState { return nil }

// Freeze implements [Config]: it does nothing.
func (Base) Freeze() {}
