package volume

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// VolumeManager makes ready what the containers of a pod mount, and takes it down
// again. [Manager] is the default.
type VolumeManager interface {
	SetUp(ctx context.Context, pod *v1.Pod, podDir string) (map[string]runtime.Volume, error)
	TearDown(ctx context.Context, ref runtime.PodRef, podDir string) error
	Exceeded(ctx context.Context, pod *v1.Pod, podDir string) (string, error)
	SubPath(ctx context.Context, req runtime.SubPath) (string, error)
	Remove(ctx context.Context, ref runtime.PodRef, podDir string) error
}
