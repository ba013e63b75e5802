package podconfig

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// restarts are the delays between two runs of a source that fails. A run that lasts as long as the
// longest delay counts as healthy: the next delay is the shortest again.
var restarts = flow.Backoff{Min: time.Second, Max: time.Minute}

// supervise runs a source until ctx ends or the source is complete.
func (m *Mux) supervise(ctx context.Context, r *registration) {
	logger := m.observer.Logger.WithValues("source", r.name)
	restarts.Repeat(ctx, func() error {
		delivered, err := m.runOnce(ctx, r)
		switch {
		case ctx.Err() != nil:
			if err != nil && !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) {
				logger.V(1).Info("Pod source ended with an error", "error", err.Error())
			}
		case err == nil && delivered:
			logger.V(1).Info("Pod source is complete; its pods stay")
		case err == nil:
			return errors.New("the source ended without delivering a snapshot")
		}
		return err
	}, func(err error, retryIn time.Duration) {
		details := []any{"retryIn", retryIn}
		if p := (*runtime.PanicError)(nil); errors.As(err, &p) {
			details = append(details, "stack", string(p.Stack))
		}
		logger.Error(err, "Pod source failed; its pods stay, and it is run again", details...)
		m.observer.Measure.Emit(SourceFailed{r.name})
	})
}

// runOnce runs the source once, and reports whether it has delivered a snapshot.
func (m *Mux) runOnce(ctx context.Context, r *registration) (delivered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &sink{mux: m, registration: r}
	err = runtime.Recover(func() error { return r.source.Run(ctx, s) })
	return m.inbox.close(s), err
}

// sink is the [Sink] of one run of a source. inbox.mu guards its state.
type sink struct {
	mux          *Mux
	registration *registration
	delivered    bool // the run has delivered a snapshot
	closed       bool // the run has ended
}

// NodeName implements [Sink].
func (s *sink) NodeName() string { return s.mux.nodeName }

// StaticUID implements [Sink].
func (s *sink) StaticUID(ctx context.Context, pod StaticPod) types.UID {
	pod.Source = s.registration.name
	return s.mux.uid(ctx, pod)
}

// Set implements [Sink].
func (s *sink) Set(pods []*v1.Pod) {
	s.mux.add(s, delivery{source: s.registration, snapshot: true, pods: pods})
}

// Reject implements [Sink].
func (s *sink) Reject(pod runtime.PodRef, err error) {
	if !s.mux.inbox.ignores(s) {
		s.mux.reject(s.registration.name, pod, err)
	}
}

// Warn implements [Sink].
func (s *sink) Warn(pod runtime.PodRef, err error) {
	if !s.mux.inbox.ignores(s) {
		s.mux.warn(s.registration.name, pod, err)
	}
}

// Restored implements [Sink].
func (s *sink) Restored() []*v1.Pod {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	return s.registration.restored
}

// Apply implements [Sink].
func (s *sink) Apply(d Delta) {
	s.mux.add(s, delivery{source: s.registration, delta: d})
}
