package status

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// SinkFunc returns a [Sink] that calls f to deliver a status. It has no use for the end of pods, see [SinkBase].
func SinkFunc(f func(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error) Sink {
	return sinkFunc{f: f}
}

type sinkFunc struct {
	SinkBase
	f func(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error
}

// Deliver implements [Sink].
func (s sinkFunc) Deliver(ctx context.Context, pod *v1.Pod, status v1.PodStatus) (Result, error) {
	return Result{}, s.f(ctx, pod, status)
}
