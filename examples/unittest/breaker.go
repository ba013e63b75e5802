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
	podconfig.Source // all pods, crashing or not
	next             status.Sink
	limit            int32
	rest             time.Duration
	// wake has room for one; it is full when there is something new to deliver.
	wake chan struct{}

	mu   sync.Mutex
	pods []*v1.Pod
	// delivered is true when the source has delivered its pods.
	delivered bool
	// until has the time until which each removed pod is away.
	until map[types.UID]time.Time
}

// NewBreaker returns a breaker that removes a pod for the duration rest when its containers
// have been restarted limit times.
func NewBreaker(source podconfig.Source, next status.Sink, limit int32, rest time.Duration) *Breaker {
	return &Breaker{
		Source: source, next: next, limit: limit, rest: rest,
		wake: make(chan struct{}, 1), until: map[types.UID]time.Time{},
	}
}

func (b *Breaker) poke() {
	select {
	case b.wake <- struct{}{}:
	default: // it will wake up already
	}
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
		b.poke()
	}
	b.mu.Unlock()
	return b.next.Deliver(ctx, pod, st)
}

// PodGone implements [status.Sink].
func (b *Breaker) PodGone(ctx context.Context, pod runtime.PodRef, last *v1.PodStatus) error {
	return b.next.PodGone(ctx, pod, last)
}

// Unwrap lets the agent find optional interfaces of the source, such as
// [podconfig.SourceRestorer].
func (b *Breaker) Unwrap() any { return b.Source }

// Run implements [podconfig.Source].
func (b *Breaker) Run(ctx context.Context, sink podconfig.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1) // one value, of the one goroutine
	go func() {
		ended <- b.Source.Run(ctx, podconfig.NewSnapshotSink(sink.NodeName(), func(pods []*v1.Pod) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.pods, b.delivered = pods, true
			b.poke()
		}))
	}()
	for {
		timer := time.NewTimer(b.deliver(sink))
		select {
		case err := <-ended:
			timer.Stop()
			return err
		case <-b.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// deliver delivers the pods that may run, and returns the time until it is due again.
func (b *Breaker) deliver(sink podconfig.Sink) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := time.Hour
	pods := make([]*v1.Pod, 0, len(b.pods))
	for _, pod := range b.pods {
		if left := time.Until(b.until[pod.UID]); left > 0 {
			wait = min(wait, left)
			continue
		}
		delete(b.until, pod.UID)
		pods = append(pods, pod)
	}
	if b.delivered {
		sink.Set(pods)
	}
	return wait
}
