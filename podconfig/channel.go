package podconfig

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Channel is a source of pods that another part of the program sends, such as a
// control plane of the embedder's own. Each value that is sent is the full list of
// the pods that are wanted from then on. They pass to the [Mux] as they are: what
// sends them has let manifest.Load read them, or has called manifest.SetDefaults on pods that have
// a name, a namespace and a UID.
type Channel struct {
	name string
	pods <-chan []*v1.Pod
}

// NewChannel returns a source of that name. When the channel is closed the source is
// complete: the pods that were sent last stay. One that is closed before anything
// was sent counts as failed.
func NewChannel(name string, pods <-chan []*v1.Pod) *Channel { return &Channel{name, pods} }

// Name implements [Source].
func (c *Channel) Name() string { return c.name }

// Run implements [Source].
func (c *Channel) Run(ctx context.Context, sink Sink) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case pods, open := <-c.pods:
			if !open {
				return nil
			}
			sink.Set(pods)
		}
	}
}

// Static is a source of pods that are wanted as long as the program runs.
type Static struct {
	name string
	pods []*v1.Pod
}

// NewStatic returns a source of that name. For the pods the same holds as for those
// of a [Channel]. They must not be changed afterwards.
func NewStatic(name string, pods ...*v1.Pod) *Static { return &Static{name, slices.Clone(pods)} }

// Name implements [Source].
func (s *Static) Name() string { return s.name }

// Run implements [Source]. It returns at once: the source has no more to say.
func (s *Static) Run(_ context.Context, sink Sink) error {
	sink.Set(slices.Clone(s.pods))
	return nil
}
