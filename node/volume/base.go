package volume

import (
	"context"

	v1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Base is a [Manager] that supports no type of volume. Embed it in implementations, so that
// methods added later do not break them.
type Base struct{}

var _ Manager = Base{}

// none has no plugins.
func none() *Reconciler { return &Reconciler{} }

// SetUp implements [Manager]. Each volume that is used has an error that wraps
// [ErrUnsupported].
func (Base) SetUp(ctx context.Context, pod *v1.Pod, podDir string) (map[string]runtime.Volume, error) {
	return none().SetUp(ctx, pod, podDir)
}

// SubPath implements [Manager]. It returns [ErrUnsupported].
func (Base) SubPath(context.Context, runtime.SubPath) (string, error) { return "", ErrUnsupported }

// Exceeded implements [Manager]. No volume exceeds its limit.
func (Base) Exceeded(context.Context, *v1.Pod, string) (string, error) { return "", nil }

// TearDown implements [Manager]. It unmounts and removes the volumes in the directory of the
// pod, which an earlier agent may have left.
func (Base) TearDown(ctx context.Context, ref runtime.PodRef, podDir string) error {
	return none().TearDown(ctx, ref, podDir)
}

// Remove implements [Manager].
func (Base) Remove(ctx context.Context, ref runtime.PodRef, podDir string) error {
	return none().Remove(ctx, ref, podDir)
}

// Usage implements [Manager]. It returns 0.
func (Base) Usage(context.Context, *v1.Pod, string) (int64, error) { return 0, nil }

// VolumeStats implements [Manager]. There are none.
func (Base) VolumeStats(context.Context, *v1.Pod, string) ([]statsv1alpha1.VolumeStats, error) {
	return nil, nil
}
