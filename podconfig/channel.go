package podconfig

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Channel is a [Source] of pods that another part of the program sends, such as an
// embedder's own control plane. Each value on the channel is a snapshot. The pods need a
// name, a namespace, a UID, and a container with an image. The [Mux] sets the defaults.
type Channel struct {
	name string
	pods <-chan []*v1.Pod
}

// NewChannel returns a source of that name. If the channel is closed after a snapshot was
// sent, the source is complete and its last pods stay. If it is closed without a snapshot,
// the source has failed.
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

// Static is a [Source] of pods that never change.
type Static struct {
	name string
	pods []*v1.Pod
}

// NewStatic returns a source of that name. The pods need the same as those of a [Channel],
// and must not be changed afterwards.
func NewStatic(name string, pods ...*v1.Pod) *Static { return &Static{name, slices.Clone(pods)} }

// Name implements [Source].
func (s *Static) Name() string { return s.name }

// Run implements [Source]. It returns at once.
func (s *Static) Run(_ context.Context, sink Sink) error {
	sink.Set(slices.Clone(s.pods))
	return nil
}
