package podsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

const (
	// evictionGrace is the grace period of a pod that is evicted for its storage, in seconds
	// (kubelet: immediateEvictionGracePeriodSeconds).
	evictionGrace = 1
	// usagePeriod is the time between two measurements of a pod (kubelet: the monitoring
	// period of its eviction manager).
	usagePeriod = 10 * time.Second
	// usageShare bounds the cost of a pod with millions of files: the time between two of its
	// measurements is at least so many times as long as the last has taken.
	usageShare = 10
	// walkers is the number of pods that are measured at the same time. One at most is a slow
	// pod; a walk for any other pod is cut after usagePeriod, and the pod is slow from then on.
	// So pods whose files take minutes delay each other, and the others by usagePeriod each, once.
	// Only a file system that does not answer cannot be left: two pods on one stop it all.
	walkers = 2
)

// measurements are the pods whose storage is measured.
type measurements struct {
	mu   sync.Mutex
	pods map[types.UID]*measurement
	// wake has room for one token: there is one if pods has become non-empty since it was taken.
	wake flow.Signal
}

// measurement is what is known of the storage of one pod.
type measurement struct {
	// pod and observed are those of the latest SyncPod.
	pod      *v1.Pod
	observed *runtime.PodStatus
	dir      string
	// due is the time of the next measurement.
	due time.Time
	// took is how long the last measurement has taken.
	took time.Duration
	// forgotten means that the pod is removed at the end of the measurement under way.
	forgotten bool
	// cancel ends the measurement under way, and done is closed at its end. Both are nil if
	// none is.
	cancel context.CancelFunc
	done   chan struct{}
	// message is kubelet's, with which the pod is evicted; empty if it exceeds no limit.
	message string
	// failed is the error of the last measurement, which is logged; it belongs to the one under way.
	failed string
}

// slow reports whether only a walk without a time limit measures the pod.
func (p *measurement) slow() bool { return p.took >= usagePeriod }

// note has the storage of the pod measured from now on, and returns why it is to be evicted. It
// does nothing while a measurement from before forget is under way.
func (m *measurements) note(pod *v1.Pod, observed *runtime.PodStatus, dir string) (message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[pod.UID]
	if p == nil {
		p = &measurement{dir: dir, due: time.Now().Add(usagePeriod)} // a new pod has nothing yet
		if m.pods == nil {
			m.pods = map[types.UID]*measurement{}
		}
		m.pods[pod.UID] = p
		m.wake.Notify()
	}
	if p.forgotten {
		return ""
	}
	p.pod, p.observed = pod, observed
	return p.message
}

// stop ends the measurements of a pod. done is closed at the end of the one under way; it is nil
// if none is.
func (m *measurements) stop(uid types.UID) (done <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil || p.done == nil {
		delete(m.pods, uid)
		return nil
	}
	p.forgotten = true
	p.cancel()
	return p.done
}

// forget ends the measurements of a pod, and waits for the one under way: it holds
// directories open that are about to be unmounted and removed. It returns an error if that has not
// ended after usagePeriod, as when the file system does not answer, and is to be called again.
func (m *measurements) forget(ctx context.Context, uid types.UID) error {
	done := m.stop(uid)
	if done == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, usagePeriod)
	defer cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the end of the measurement of its storage: %w", context.Cause(ctx))
	}
}

// take returns the pods that are to be measured now.
func (m *measurements) take(now time.Time) []*measurement {
	m.mu.Lock()
	defer m.mu.Unlock()
	var due []*measurement
	for _, p := range m.pods {
		if p.done == nil && p.message == "" && !now.Before(p.due) {
			due = append(due, p)
		}
	}
	return due
}

// begin begins the measurement of a pod. It returns false if the pod was forgotten, or is being
// measured: it may be taken again before its measurement begins.
func (m *measurements) begin(ctx context.Context,
	p *measurement) (_ context.Context, pod *v1.Pod, observed *runtime.PodStatus, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pods[p.pod.UID] != p || p.done != nil {
		return nil, nil, nil, false
	}
	if p.slow() {
		ctx, p.cancel = context.WithCancel(ctx)
	} else {
		ctx, p.cancel = context.WithTimeout(ctx, usagePeriod)
	}
	p.done = make(chan struct{})
	return ctx, p.pod, p.observed, true
}

// exceeds records that a pod is to be evicted. It returns false if the pod was forgotten.
func (m *measurements) exceeds(p *measurement, message string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.forgotten {
		return false
	}
	p.message = message
	return true
}

// end ends the measurement of a pod that was due at some time and has taken some time.
func (m *measurements) end(p *measurement, due time.Time, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.cancel()
	close(p.done)
	p.cancel, p.done = nil, nil
	p.took, p.due = took, due.Add(max(usagePeriod, usageShare*took))
	if p.forgotten {
		delete(m.pods, p.pod.UID)
	}
}

// empty reports whether no pod has limits.
func (m *measurements) empty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pods) == 0
}

// evictForStorage measures the storage of pods that have limits, until ctx ends: every 10
// s, two pods at a time, and each at most a tenth of the time. A pod whose measurement takes
// 10 s or more is measured less often, one such pod at a time. It delays no SyncPod. It
// kills each pod that has come to exceed a limit at once, with a grace period of 1 s and
// kubelet's status: also while SyncPod for it is under way, and while it is being stopped in
// a longer grace period, unless a new incarnation of it waits for its end.
func (s *Syncer) evictForStorage(ctx context.Context, workers podworkers.Workers) {
	s.measureStorage(ctx, func(pod *v1.Pod, message string) {
		if workers.State(pod.UID).RestartRequested {
			return // a kill would end the next incarnation, too
		}
		workers.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod, OnlyKnown: true,
			Kill: &podworkers.KillOptions{
				Evict: true, GracePeriod: new(int64(evictionGrace)), Status: evicted(message).apply,
			}})
		// Last: Event is code of the embedder, and a pod that it lets begin would be killed.
		s.warn(pod, reasonEvicted, message)
	})
}

// measureStorage measures pods until ctx ends, and calls exceeded with each pod that has come to
// exceed a limit, and kubelet's message.
func (s *Syncer) measureStorage(ctx context.Context, exceeded func(pod *v1.Pod, message string)) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	slots, slow := make(chan struct{}, walkers), make(chan struct{}, 1)
	tick := time.NewTimer(usagePeriod)
	defer tick.Stop()
	for {
		if s.measured.empty() {
			select {
			case <-ctx.Done():
				return
			case <-s.measured.wake:
			}
		}
		tick.Reset(usagePeriod)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		for _, p := range s.measured.take(now) {
			freeSlow := func() {}
			if p.slow() { // nothing measures it now, which would change that
				select {
				case slow <- struct{}{}:
					freeSlow = func() { <-slow }
				default:
					continue // it stays due
				}
			}
			select {
			case <-ctx.Done():
				return
			case slots <- struct{}{}:
			}
			tasks.Go(func() {
				defer func() {
					<-slots
					freeSlow()
				}()
				s.measure(ctx, p, now, exceeded)
			})
		}
	}
}

// measure measures the storage of one pod, which was due at some time. It calls exceeded during the
// measurement: the incarnation of the pod that was measured has not finished then.
func (s *Syncer) measure(ctx context.Context, p *measurement, due time.Time,
	exceeded func(pod *v1.Pod, message string)) {
	ctx, pod, observed, ok := s.measured.begin(ctx, p)
	if !ok {
		return
	}
	began, message := time.Now(), ""
	err := runtime.Recover(func() (err error) {
		message, err = s.exceeds(ctx, pod, p.dir, observed)
		return err
	})
	if failed := message == "" && err != nil; ctx.Err() == nil {
		if failed && err.Error() != p.failed {
			s.log.Error(err, "Not all storage of a pod can be measured; what is not does not count for its limits",
				"pod", runtime.RefOf(pod))
		}
		if p.failed = ""; failed {
			p.failed = err.Error()
		}
	}
	took := time.Since(began)
	if message != "" && s.measured.exceeds(p, message) {
		exceeded(pod, message)
	}
	s.measured.end(p, due, took)
}

// exceeds returns kubelet's message if the pod exceeds a limit, and an empty one otherwise.
func (s *Syncer) exceeds(ctx context.Context, pod *v1.Pod, dir string,
	observed *runtime.PodStatus) (message string, err error) {
	if volume.HasSizeLimit(pod) {
		message, err = s.deps.Volumes.Exceeded(ctx, pod, dir)
	}
	if message == "" && hasStorageLimit(pod) {
		var failed error
		message, failed = s.storageExceeded(ctx, pod, dir, observed)
		err = errors.Join(err, failed)
	}
	if ctx.Err() != nil {
		message = "" // what was measured so far says nothing
	}
	return message, err
}

// measuredPod reports whether the storage of the pod has to be measured. spareStatic is
// [Options.SpareStatic].
func measuredPod(pod *v1.Pod, spareStatic bool) bool {
	return (volume.HasSizeLimit(pod) || hasStorageLimit(pod)) && !isSpared(pod, spareStatic)
}

// isSpared reports whether the pod is not evicted for its storage: a pod with the priority of the
// system's classes, or a static pod with such a class. A static pod has no number for its priority,
// since no API server has admitted it, and does not start again by itself after an eviction
// (kubernetes#40573). Therefore kubelet spares all static pods, and so does spareStatic.
func isSpared(pod *v1.Pod, spareStatic bool) bool {
	if podspec.HasCriticalPriority(pod) {
		return true
	}
	class := pod.Spec.PriorityClassName
	return podspec.IsStatic(pod) && (spareStatic || class == "system-node-critical" ||
		class == "system-cluster-critical")
}
