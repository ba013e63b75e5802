package fake

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
	"github.com/kubeletkit/kubeletkit/status"
)

// Delivery is one call of a [Sink].
type Delivery struct {
	Pod runtime.PodRef
	// Gone is true if it was a call of PodGone, false if it was one of Deliver.
	Gone bool
	// Status is what was delivered. For a call of PodGone it is the last status, the
	// zero value if there was none.
	Status v1.PodStatus
	// At is when the call began.
	At time.Time
	// Err is what the call returned.
	Err error
}

// Sink is a [status.Sink] that records all calls. It is safe
// for concurrent use.
type Sink struct {
	cond cond.Cond

	mu       sync.Mutex
	calls    []Delivery
	finished []types.UID
	busy     map[types.UID]bool
	overlaps int
	err      error
	failures int
	delay    time.Duration
	hook     func(context.Context, Delivery) error
	changed  func(types.UID)
}

var _ status.Sink = (*Sink)(nil)

// NewSink returns a sink that accepts everything.
func NewSink() *Sink { return &Sink{busy: map[types.UID]bool{}} }

// Fail makes the next n calls fail with the error; all calls if n is negative, none
// if it is 0. Use [status.ErrGone] for pods that the sink does not have.
func (s *Sink) Fail(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.err = n, err
}

// SetDelay makes calls last that long, or until their context ends.
func (s *Sink) SetDelay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// SetHook makes each call run hook, after the delay. An error is the result of the
// call. Calls run concurrently.
func (s *Sink) SetHook(hook func(ctx context.Context, d Delivery) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// Deliver implements [status.Sink].
func (s *Sink) Deliver(ctx context.Context, pod *v1.Pod, st v1.PodStatus) (status.Result, error) {
	return status.Result{}, s.call(ctx, Delivery{Pod: runtime.RefOf(pod), Status: *st.DeepCopy(), At: time.Now()})
}

// WatchReceiver implements [status.Sink].
func (s *Sink) WatchReceiver(ctx context.Context, changed func(types.UID)) {
	s.mu.Lock()
	s.changed = changed
	s.mu.Unlock()
	<-ctx.Done()
}

// Request makes the manager deliver the latest status of the pod again. It does nothing before the manager calls
// WatchReceiver.
func (s *Sink) Request(uid types.UID) {
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()
	if changed != nil {
		changed(uid)
	}
}

// PodFinished implements [status.Sink].
func (s *Sink) PodFinished(pod runtime.PodRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = append(s.finished, pod.UID)
}

// PodGone implements [status.Sink].
func (s *Sink) PodGone(ctx context.Context, pod runtime.PodRef, last *v1.PodStatus) error {
	d := Delivery{Pod: pod, Gone: true, At: time.Now()}
	if last != nil {
		d.Status = *last.DeepCopy()
	}
	return s.call(ctx, d)
}

func (s *Sink) call(ctx context.Context, d Delivery) error {
	s.mu.Lock()
	if s.busy[d.Pod.UID] {
		s.overlaps++
	}
	s.busy[d.Pod.UID] = true
	delay, hook := s.delay, s.hook
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
	if hook != nil {
		if err := hook(ctx, d); err != nil {
			d.Err = err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, d.Pod.UID)
	s.calls = append(s.calls, d)
	s.cond.Changed()
	return d.Err
}

// Calls returns all calls for the pod, or for all pods if uid is empty, also those
// that failed, in the order in which they returned.
func (s *Sink) Calls(uid types.UID) []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Delivery
	for _, d := range s.calls {
		if uid == "" || d.Pod.UID == uid {
			out = append(out, d)
		}
	}
	return out
}

// Finished returns the pods that PodFinished was called for, in order.
func (s *Sink) Finished() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.finished)
}

// Deliveries is Calls without those of PodGone.
func (s *Sink) Deliveries(uid types.UID) []Delivery {
	var out []Delivery
	for _, d := range s.Calls(uid) {
		if !d.Gone {
			out = append(out, d)
		}
	}
	return out
}

// Latest returns the last status of the pod that was accepted, or false.
func (s *Sink) Latest(uid types.UID) (v1.PodStatus, bool) {
	all := s.Deliveries(uid)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Err == nil {
			return all[i].Status, true
		}
	}
	return v1.PodStatus{}, false
}

// Gone reports whether the end of the pod was accepted, and no later status of its
// UID.
func (s *Sink) Gone(uid types.UID) bool {
	all := s.Calls(uid)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Err == nil {
			return all[i].Gone
		}
	}
	return false
}

// Overlaps returns the number of calls that began while another one for the same
// pod was under way, which breaks the contract of [status.Sink].
func (s *Sink) Overlaps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overlaps
}

// Until waits until wanted returns true for the latest status of the pod, and
// returns that status.
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

// UntilGone waits until [Sink.Gone] returns true.
func (s *Sink) UntilGone(ctx context.Context, uid types.UID) error {
	return s.cond.Until(ctx, func() bool { return s.Gone(uid) }, nil)
}
