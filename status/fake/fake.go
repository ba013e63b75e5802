// Package fake is a sink of pod statuses that remembers, and fails when it is
// told to.
//
//	sink := fake.NewSink()
//	sink.Fail(3, errors.New("conflict"))
//	… // the status.Manager delivers to it
//	s, err := sink.Until(ctx, uid, func(s v1.PodStatus) bool { return s.Phase == v1.PodRunning })
package fake

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
	"github.com/kubeletkit/kubeletkit/status"
)

// Delivery is one call of Deliver.
type Delivery struct {
	Pod    runtime.PodRef
	Status v1.PodStatus
	// At is when it began.
	At time.Time
	// Err is what it was answered with.
	Err error
}

// Sink is a [status.Sink]. It is safe for concurrent use.
type Sink struct {
	cond cond.Cond

	mu         sync.Mutex
	deliveries []Delivery
	busy       map[types.UID]bool
	overlaps   int
	err        error
	failures   int
	delay      time.Duration
}

var _ status.Sink = (*Sink)(nil)

// NewSink returns a sink that takes everything.
func NewSink() *Sink { return &Sink{busy: map[types.UID]bool{}} }

// Fail has the next n deliveries fail with the error; n below 0 stands for all to
// come, 0 for none. A pod that is to be thought gone fails with [status.ErrGone].
func (s *Sink) Fail(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.err = n, err
}

// SetDelay has deliveries take that long.
func (s *Sink) SetDelay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// Deliver implements [status.Sink].
func (s *Sink) Deliver(ctx context.Context, pod *v1.Pod, st v1.PodStatus) error {
	d := Delivery{Pod: runtime.RefOf(pod), Status: *st.DeepCopy(), At: time.Now()}
	s.mu.Lock()
	if s.busy[pod.UID] {
		s.overlaps++
	}
	s.busy[pod.UID] = true
	delay := s.delay
	if s.failures != 0 {
		d.Err = s.err
		s.failures = max(s.failures-1, -1)
	}
	s.mu.Unlock()

	if delay > 0 {
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			d.Err = ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, pod.UID)
	s.deliveries = append(s.deliveries, d)
	s.cond.Changed()
	return d.Err
}

// Deliveries returns all that were made for the pod, or for all pods if uid is
// empty, failed ones too, in the order in which they ended.
func (s *Sink) Deliveries(uid types.UID) []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Delivery
	for _, d := range s.deliveries {
		if uid == "" || d.Pod.UID == uid {
			out = append(out, d)
		}
	}
	return out
}

// Latest returns the last status of the pod that was taken, or false.
func (s *Sink) Latest(uid types.UID) (v1.PodStatus, bool) {
	all := s.Deliveries(uid)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Err == nil {
			return all[i].Status, true
		}
	}
	return v1.PodStatus{}, false
}

// Overlaps returns how often a pod had two deliveries at once, which breaks the
// contract of [status.Sink].
func (s *Sink) Overlaps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overlaps
}

// Until returns when the latest status of the pod is as wanted, and that status.
func (s *Sink) Until(ctx context.Context, uid types.UID, wanted func(v1.PodStatus) bool) (v1.PodStatus, error) {
	var st v1.PodStatus
	err := s.cond.Until(ctx, func() bool {
		var ok bool
		st, ok = s.Latest(uid)
		return ok && wanted(st)
	}, func() string {
		return fmt.Sprintf("phase %q of pod %s after %d deliveries", st.Phase, uid, len(s.Deliveries(uid)))
	})
	return st, err
}

// UntilPhase is Until for a phase.
func (s *Sink) UntilPhase(ctx context.Context, uid types.UID, phase v1.PodPhase) (v1.PodStatus, error) {
	return s.Until(ctx, uid, func(st v1.PodStatus) bool { return st.Phase == phase })
}
