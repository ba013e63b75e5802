// Package fake has fakes of package podworkers for tests: [Syncer] records its calls, and
// [Workers] records updates.
//
//	syncer := fake.NewSyncer()
//	workers, err := podworkers.New(syncer, cache, podworkers.Options{})
//	release := syncer.Hold(fake.SyncPod, "uid-1")
//	…
//	call, err := syncer.UntilCalled(ctx, fake.SyncTerminatingPod, "uid-1")
package fake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
)

// Method is a method of [podworkers.Syncer].
type Method string

// The methods.
const (
	SyncPod               Method = "SyncPod"
	SyncTerminatingPod    Method = "SyncTerminatingPod"
	SyncTerminatingOrphan Method = "SyncTerminatingOrphan"
	SyncTerminatedPod     Method = "SyncTerminatedPod"
)

// Call is a call of a method.
type Call struct {
	Method Method
	Pod    runtime.PodRef
	// Type of a SyncPod.
	Type podworkers.UpdateType
	// Spec is the pod, nil for an orphan.
	Spec *v1.Pod
	// Status is the runtime's status of the pod.
	Status *runtime.PodStatus
	// Grace is the grace period of a termination, in seconds; nil if there was none.
	Grace *int64
	// Evicted and Override are those of a [podworkers.Termination].
	Evicted  bool
	Override func(*v1.PodStatus)
	// Began and Ended are the times of the call; Ended is zero while it is under way.
	Began, Ended time.Time
	// Err is the error that the call returned.
	Err error
}

// String returns the call as in "SyncPod create default/web".
func (c *Call) String() string {
	words := []string{string(c.Method)}
	if c.Method == SyncPod {
		words = append(words, c.Type.String())
	}
	words = append(words, c.Pod.Namespace+"/"+c.Pod.Name)
	if c.Grace != nil {
		words = append(words, fmt.Sprintf("%ds", *c.Grace))
	}
	return strings.Join(words, " ")
}

// Syncer is a [podworkers.Syncer] that does nothing. Its calls succeed at once
// unless a test has them fail or wait. It is safe for concurrent use. Make one with
// [NewSyncer].
type Syncer struct {
	podworkers.SyncerBase
	cond cond.Cond

	mu       sync.Mutex
	calls    []*Call
	busy     map[types.UID]int
	overlaps int
	answer   func(Call) (podworkers.Result, error)
	holds    []*hold
	failures []*failure
}

type hold struct {
	method Method
	uid    types.UID
	// released is closed when calls may go on.
	released chan struct{}
}

type failure struct {
	method Method
	uid    types.UID
	left   int
	err    error
}

var _ podworkers.Syncer = (*Syncer)(nil)

// NewSyncer returns a syncer without calls.
func NewSyncer() *Syncer { return &Syncer{busy: map[types.UID]int{}} }

// Answer sets the function that returns the outcome of calls. Its result is used for
// SyncPod only. nil: calls succeed.
func (s *Syncer) Answer(f func(Call) (podworkers.Result, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// Fail makes the next n calls of the method for the pod fail. An empty UID means all
// pods.
func (s *Syncer) Fail(m Method, uid types.UID, n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, &failure{m, uid, n, err})
}

// Hold makes calls of the method for the pod wait until release is called or their
// context ends. Then their error is the cause of the context. An empty UID means all
// pods.
func (s *Syncer) Hold(m Method, uid types.UID) (release func()) {
	h := &hold{m, uid, make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = append(s.holds, h)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holds = slices.DeleteFunc(s.holds, func(o *hold) bool { return o == h })
		close(h.released)
	})
}

// SyncPod implements [podworkers.Syncer].
func (s *Syncer) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod,
	status *runtime.PodStatus) (podworkers.Result, error) {
	return s.call(ctx, Call{Method: SyncPod, Pod: runtime.RefOf(pod), Type: typ, Spec: pod, Status: status})
}

// SyncTerminatingPod implements [podworkers.Syncer].
func (s *Syncer) SyncTerminatingPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus,
	t podworkers.Termination) error {
	_, err := s.call(ctx, Call{Method: SyncTerminatingPod, Pod: runtime.RefOf(pod), Spec: pod, Status: status,
		Grace: t.GracePeriod, Evicted: t.Evicted, Override: t.Status})
	return err
}

// SyncTerminatingOrphan implements [podworkers.Syncer].
func (s *Syncer) SyncTerminatingOrphan(ctx context.Context, pod *runtime.Pod, status *runtime.PodStatus,
	gracePeriod *int64) error {
	_, err := s.call(ctx, Call{Method: SyncTerminatingOrphan, Pod: pod.PodRef, Status: status, Grace: gracePeriod})
	return err
}

// SyncTerminatedPod implements [podworkers.Syncer].
func (s *Syncer) SyncTerminatedPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus) error {
	_, err := s.call(ctx, Call{Method: SyncTerminatedPod, Pod: runtime.RefOf(pod), Spec: pod, Status: status})
	return err
}

// errPanicked is the Err of a call whose answer has panicked.
var errPanicked = errors.New("the answer has panicked")

func (s *Syncer) call(ctx context.Context, c Call) (res podworkers.Result, err error) {
	c.Began = time.Now()
	rec := &c
	holds, answer, err := s.begin(rec)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy[c.Pod.UID]--
		rec.Ended, rec.Err = time.Now(), err
		s.cond.Changed()
	}()
	for _, h := range holds {
		select {
		case <-h.released:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err == nil && answer != nil {
		err = errPanicked
		res, err = answer(*rec)
	}
	return res, err
}

// begin records a call and returns the scripts that apply to it.
func (s *Syncer) begin(c *Call) (holds []*hold, answer func(Call) (podworkers.Result, error), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
	if s.busy[c.Pod.UID]++; s.busy[c.Pod.UID] > 1 {
		s.overlaps++
	}
	for _, h := range s.holds {
		if h.method == c.Method && (h.uid == "" || h.uid == c.Pod.UID) {
			holds = append(holds, h)
		}
	}
	for _, f := range s.failures {
		if f.method == c.Method && (f.uid == "" || f.uid == c.Pod.UID) && f.left > 0 {
			f.left--
			err = f.err
			break
		}
	}
	s.cond.Changed()
	return holds, s.answer, err
}

// Calls returns the calls for the pod in the order in which they began. An empty UID
// means all pods.
func (s *Syncer) Calls(uid types.UID) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Call
	for _, c := range s.calls {
		if uid == "" || c.Pod.UID == uid {
			out = append(out, *c)
		}
	}
	return out
}

// Transcript returns Calls, each as one line.
func (s *Syncer) Transcript(uid types.UID) []string {
	var out []string
	for _, c := range s.Calls(uid) {
		out = append(out, c.String())
	}
	return out
}

// Overlaps returns the number of calls that began while another call for the same pod
// was under way. The contract of [podworkers.Syncer] excludes that.
func (s *Syncer) Overlaps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overlaps
}

// Until returns when cond returns true. cond is called at once, and whenever a call
// begins or ends. The error is that of ctx.
func (s *Syncer) Until(ctx context.Context, cond func() bool) error {
	return s.cond.Until(ctx, cond, func() string { return strings.Join(s.Transcript(""), ", ") })
}

// UntilCalled waits until a call of the method for the pod has begun, and returns the
// first one.
func (s *Syncer) UntilCalled(ctx context.Context, m Method, uid types.UID) (Call, error) {
	var found Call
	err := s.Until(ctx, func() bool {
		calls := s.Calls(uid)
		i := slices.IndexFunc(calls, func(c Call) bool { return c.Method == m })
		if i >= 0 {
			found = calls[i]
		}
		return i >= 0
	})
	return found, err
}
