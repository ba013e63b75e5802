// Package unittest shows how to test a controller with the fakes: its test runs a whole
// agent, with faults, in virtual time.
//
// The controller is a circuit breaker between a source of pods and the agent. It removes
// pods that crash too often, and restores them after a pause. It counts crashes in the
// statuses that it receives as the agent's status sink. The source must give its pods
// UIDs.
package unittest

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// Breaker is a [podconfig.Source] and a [status.Sink].
type Breaker struct {
	*podconfig.Mapped // the pods that may run
	next              status.Sink
	limit             int32
	rest              time.Duration

	mu sync.Mutex
	// until has the time until which each removed pod is away.
	until map[types.UID]time.Time
}

// NewBreaker returns a breaker that removes a pod for the duration rest when its containers
// have been restarted limit times.
func NewBreaker(source podconfig.Source, next status.Sink, limit int32, rest time.Duration) *Breaker {
	b := &Breaker{next: next, limit: limit, rest: rest, until: map[types.UID]time.Time{}}
	b.Mapped = podconfig.MapPods(source, b.pod)
	return b
}

// pod returns the pod, or nil while it is away.
func (b *Breaker) pod(pod *v1.Pod) *v1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.until[pod.UID]) {
		return nil
	}
	delete(b.until, pod.UID)
	return pod
}

// Deliver implements [status.Sink].
func (b *Breaker) Deliver(ctx context.Context, pod *v1.Pod, st v1.PodStatus) (status.Result, error) {
	restarts := int32(0)
	for i := range st.ContainerStatuses {
		restarts += st.ContainerStatuses[i].RestartCount
	}
	b.mu.Lock()
	if _, away := b.until[pod.UID]; !away && restarts >= b.limit {
		b.until[pod.UID] = time.Now().Add(b.rest)
		b.Refresh()
		time.AfterFunc(b.rest, b.Refresh)
	}
	b.mu.Unlock()
	return b.next.Deliver(ctx, pod, st)
}

// WatchReceiver implements [status.Sink].
func (b *Breaker) WatchReceiver(ctx context.Context, changed func(types.UID)) {
	b.next.WatchReceiver(ctx, changed)
}

// PodFinished implements [status.Sink].
func (b *Breaker) PodFinished(pod runtime.PodRef) { b.next.PodFinished(pod) }

// PodGone implements [status.Sink].
func (b *Breaker) PodGone(ctx context.Context, pod runtime.PodRef, last *v1.PodStatus) error {
	return b.next.PodGone(ctx, pod, last)
}
