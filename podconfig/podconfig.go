package podconfig

import "context"

// PodConfig is the stream of the pods that should run on the node. [Mux] is the
// default. Implementations are safe for concurrent use. An implementation may also
// be a [SourceRegistry] or a [Freezer].
type PodConfig interface {
	// Run produces the stream until ctx ends, then closes the channel of Changes and
	// returns nil. A second call returns an error that wraps
	// [runtime.ErrAlreadyRunning].
	Run(ctx context.Context) error
	// Changes returns the stream of changes, which has one reader. The package
	// documentation lists its guarantees.
	Changes() <-chan Change
	// AllSeen reports whether the reader has received the pods of all sources. While it
	// is true, a pod that is not in the stream is not desired. It may become false again
	// when a source is added or removed.
	AllSeen() bool
}

// SourceRegistry is an optional interface of a [PodConfig] whose sources may change
// while it runs.
type SourceRegistry interface {
	// Add registers a source, and runs it if the PodConfig runs.
	Add(source Source) error
	// Remove removes the source of that name with its pods, and reports whether there
	// was one. It returns after the source's Run has returned.
	Remove(name string) bool
	// Sources returns the registered sources in the order in which they were added.
	Sources() []SourceState
}

// SourceState is the state of a registered source.
type SourceState struct {
	Name string
	// Seen is true when the source has delivered a snapshot and the reader has received
	// all changes that followed from it.
	Seen bool
}

// Freezer is an optional interface of a [PodConfig] that can stop taking in pods, for
// an agent that runs one snapshot of them.
type Freezer interface {
	// Freeze ignores all deliveries of all sources from now on.
	Freeze()
}
