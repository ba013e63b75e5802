package prober

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Base is a [Manager] without probes. Embed it in implementations, so that methods added
// later do not break them.
type Base struct{}

var _ Manager = Base{}

// Run implements [Manager]. It waits until ctx ends.
func (Base) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// AddPod implements [Manager].
func (Base) AddPod(*v1.Pod) {}

// StopLivenessAndStartup implements [Manager].
func (Base) StopLivenessAndStartup(*v1.Pod) {}

// RemovePod implements [Manager].
func (Base) RemovePod(*v1.Pod) {}

// Cleanup implements [Manager].
func (Base) Cleanup(func(uid types.UID) bool) {}

// Notify implements [Manager].
func (Base) Notify(types.UID) {}

// Results implements [Manager]. It returns nil: no result is received.
func (Base) Results() <-chan runtime.ProbeResult { return nil }

// HasProbe implements [runtime.ProbeResults].
func (Base) HasProbe(*v1.Pod, *v1.Container, runtime.ProbeKind) bool { return false }

// Started implements [runtime.ProbeResults].
func (Base) Started(runtime.ContainerID) bool { return false }

// Ready implements [runtime.ProbeResults].
func (Base) Ready(runtime.ContainerID) bool { return false }

// Unhealthy implements [runtime.ProbeResults].
func (Base) Unhealthy(runtime.ContainerID) (runtime.ProbeKind, bool) { return "", false }
