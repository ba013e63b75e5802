package podstatus

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/backoff"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// errLater means that the pod waits for something, and that Run goes on when it has come.
var errLater = errors.New("podstatus: not yet")

// attend makes the API object what it is to be: its status, and its end. The error is nil,
// errLater, wraps [status.ErrGone], or is that of a call.
func (s *Sink) attend(ctx context.Context, e *entry) error {
	done, err := e.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	s.mu.Lock()
	forgotten, pod, own, mirror := e.forgotten, e.pod, e.own, e.mirror
	s.mu.Unlock()
	switch {
	case forgotten:
		return nil
	case !mirror:
		err = s.attendPod(ctx, e, own)
	case pod != nil:
		err = s.attendMirror(ctx, e, pod, own)
	default:
		err = s.attendOrphan(ctx, e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.unsent = err != nil && !errors.Is(err, status.ErrGone)
	if e.unsent && !errors.Is(err, errLater) {
		e.failures++
	} else {
		e.failures = 0
	}
	s.probeWith(e)
	return err
}

// probeWith has Run try one pod every probePeriod while the server is down, whatever the
// back-off of the pods is. s.mu is held.
func (s *Sink) probeWith(e *entry) {
	switch {
	case s.down && e.unsent && (s.probe == nil || s.probe == e || s.probe.forgotten):
		s.probe = e
		s.plan(e, time.Now().Add(probePeriod))
		s.poke()
	case s.probe == e:
		s.probe = nil
	}
}

// attendPod writes the status of a pod of the API server, and deletes the pod if it has
// ended. own is nil if the agent has no status of it.
func (s *Sink) attendPod(ctx context.Context, e *entry, own *v1.PodStatus) error {
	watched, ok := s.pods.ByUID(e.uid)
	switch {
	case ok:
	case s.pods.Synced():
		return fmt.Errorf("pod %s: %w", e, status.ErrGone)
	default:
		return errLater
	}
	obj := s.known(e, watched)
	if own != nil {
		var err error
		if obj, err = s.write(ctx, e, obj, own, *own); err != nil {
			return err
		}
	}
	return s.finish(ctx, e, obj, own)
}

// finish deletes the API object if its deletion was requested and the pod has ended.
func (s *Sink) finish(ctx context.Context, e *entry, obj *v1.Pod, own *v1.PodStatus) error {
	if obj.DeletionTimestamp == nil {
		return nil
	}
	if grace := obj.DeletionGracePeriodSeconds; grace != nil && *grace == 0 {
		return nil // finalizers keep it: the server removes it with the last one
	}
	s.mu.Lock()
	deleted, refused := e.deleted == obj.UID, own != nil && e.refused == own
	s.mu.Unlock()
	if deleted {
		return nil
	}
	reported := own == nil || final(obj.Status.Phase) || refused && final(own.Phase)
	if !reported || !s.opts.Ended(e.uid) {
		s.look(e)
		return nil
	}
	if err := s.remove(ctx, obj); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.deleted = obj.UID
	return nil
}

// attendMirror makes the mirror pod of a static pod and writes its status.
func (s *Sink) attendMirror(ctx context.Context, e *entry, static *v1.Pod, own *v1.PodStatus) error {
	if s.opts.NodeUID == nil || s.replaced(e) {
		return nil
	}
	if !s.pods.Synced() {
		return errLater
	}
	nodeUID := s.opts.NodeUID()
	if nodeUID == "" {
		s.look(e)
		return errLater
	}
	watched, _ := s.pods.ByName(e.name.Namespace, e.name.Name)
	obj := s.known(e, watched)
	if obj != nil && runtime.IsMirror(obj) && !usable(obj, static, own) {
		if err := s.remove(ctx, obj); err != nil {
			return err
		}
		obj = nil
	}
	if obj == nil {
		s.mu.Lock()
		e.accepted, e.sent = nil, nil // of another object
		s.mu.Unlock()
		var err error
		if obj, err = s.create(ctx, e, newMirror(static, s.opts.NodeName, nodeUID), own); obj == nil {
			return err
		}
	}
	if !runtime.IsMirror(obj) {
		return fmt.Errorf("static pod %s: it has no mirror pod, because another pod has its name: rename or delete one of them", e)
	}
	_, err := s.write(ctx, e, obj, own, mirrored(*own, obj))
	return err
}

// create creates the mirror pod and returns it. If a pod of the name exists that the watch
// has not delivered, create returns that one. It returns nil without an error if the server
// refuses the pod as invalid.
func (s *Sink) create(ctx context.Context, e *entry, mirror *v1.Pod, own *v1.PodStatus) (obj *v1.Pod, err error) {
	if s.isRefused(e, own) {
		return nil, nil
	}
	pods := s.client.CoreV1().Pods(mirror.Namespace)
	err = s.call(ctx, false, func(ctx context.Context) (err error) {
		obj, err = pods.Create(ctx, mirror, metav1.CreateOptions{})
		return err
	})
	if err == nil {
		s.answered(e, obj)
		s.log.V(2).Info("Created a mirror pod", "pod", e.String(), "mirrorUID", obj.UID)
		return obj, nil
	}
	switch answerOf(err) {
	case invalid:
		s.refuse(e, own, err)
		return nil, nil
	case exists:
		if getErr := s.call(ctx, false, func(ctx context.Context) (err error) {
			obj, err = pods.Get(ctx, mirror.Name, metav1.GetOptions{})
			return err
		}); getErr != nil {
			return nil, fmt.Errorf("static pod %s: reading the pod that has the name of its mirror pod: %w", e, getErr)
		}
		if runtime.IsMirror(obj) && (obj.DeletionTimestamp != nil || obj.Annotations[runtime.AnnotationConfigMirror] != mirror.Annotations[runtime.AnnotationConfigMirror]) {
			return nil, fmt.Errorf("static pod %s: creating its mirror pod: an earlier one still exists: %w", e, err)
		}
		return obj, nil
	}
	return nil, fmt.Errorf("static pod %s: creating its mirror pod: %w", e, err)
}

// attendOrphan deletes a mirror pod for which no static pod has a status, if it has none.
func (s *Sink) attendOrphan(ctx context.Context, e *entry) error {
	obj, ok := s.pods.ByUID(e.uid)
	s.mu.Lock()
	if !ok || s.static[e.name] != "" || s.opts.Orphaned == nil {
		s.forget(e)
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	if !s.opts.Orphaned(e.name.Namespace, e.name.Name) {
		s.look(e)
		return nil
	}
	if err := s.remove(ctx, obj); err != nil {
		return err
	}
	s.log.Info("Deleted a mirror pod without a static pod", "pod", e.String())
	return nil
}

// write patches the status of the API object, if it is not as it is to be, and returns the
// object as it is then. own identifies the status, as is what it is to be for this object.
func (s *Sink) write(ctx context.Context, e *entry, obj *v1.Pod, own *v1.PodStatus, as v1.PodStatus) (*v1.Pod, error) {
	if s.isRefused(e, own) || s.isAccepted(e, obj, own) {
		return obj, nil
	}
	to := merge(&obj.Status, &as)
	data, err := patch(obj.UID, &obj.Status, &to)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", e, err)
	}
	if data == nil {
		s.wrote(e, obj, own)
		return obj, nil
	}
	if wait := s.resend(e, own); wait > 0 {
		s.later(e, wait)
		return obj, nil
	}
	if as.Phase != to.Phase {
		s.log.Info("The phase in the API server stays, because it would go back", "pod", e.String(), "phase", to.Phase, "refused", as.Phase)
	}
	var answered *v1.Pod
	err = s.call(ctx, urgent(&obj.Status, &to), func(ctx context.Context) (err error) {
		answered, err = s.client.CoreV1().Pods(obj.Namespace).Patch(ctx, obj.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
		return err
	})
	if err == nil {
		s.answered(e, answered)
		s.wrote(e, answered, own)
		return answered, nil
	}
	switch answerOf(err) {
	case gone:
		s.mu.Lock()
		e.answered = nil
		s.mu.Unlock()
		return nil, fmt.Errorf("pod %s: writing its status: %w: %w", e, status.ErrGone, err)
	case invalid:
		s.refuse(e, own, err)
		return obj, nil
	}
	return nil, fmt.Errorf("pod %s: writing its status: %w", e, err)
}

// remove deletes the API object without a grace period. It is no error if it is gone.
func (s *Sink) remove(ctx context.Context, obj *v1.Pod) error {
	err := s.call(ctx, true, func(ctx context.Context) error {
		return s.client.CoreV1().Pods(obj.Namespace).Delete(ctx, obj.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0),
			Preconditions:      &metav1.Preconditions{UID: &obj.UID},
		})
	})
	if err == nil {
		return nil
	}
	if a := answerOf(err); a == gone || a == conflict {
		return nil
	}
	return fmt.Errorf("pod %s/%s (%s): deleting it from the API server: %w", obj.Namespace, obj.Name, obj.UID, err)
}

// call makes a call in its turn and with its deadline. When the server answers again after a
// failure, all that failed is put on the agenda.
func (s *Sink) call(ctx context.Context, urgent bool, f func(ctx context.Context) error) error {
	if err := s.budget.wait(ctx, urgent); err != nil {
		return fmt.Errorf("waiting for the budget of calls: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	err := f(ctx)
	down := err != nil && answerOf(err) == failed
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down && !down {
		for _, e := range s.entries {
			if e.unsent {
				s.plan(e, time.Now())
			}
		}
		s.poke()
	}
	s.down = down
	return err
}

// known returns the newest state of the API object: watched, which may be nil, or the answer
// to the last call.
func (s *Sink) known(e *entry, watched *v1.Pod) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := e.answered; a != nil && (watched == nil || older(watched, a)) {
		return a
	}
	e.answered = nil
	return watched
}

// older reports whether a is an older state than b. It returns false if the resource versions
// are no numbers: then the watch decides.
func older(a, b *v1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

func (s *Sink) answered(e *entry, obj *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj.ManagedFields = nil
	e.answered = obj
}

// wrote records that the API object has the own status, as far as the server keeps it.
func (s *Sink) wrote(e *entry, obj *v1.Pod, own *v1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.sent, e.accepted, e.refused = own, &obj.Status, nil
}

// isAccepted reports whether nothing that the agent writes has changed since the own status
// was written.
func (s *Sink) isAccepted(e *entry, obj *v1.Pod, own *v1.PodStatus) bool {
	s.mu.Lock()
	accepted, sent := e.accepted, e.sent
	s.mu.Unlock()
	return sent == own && accepted != nil && sameOwn(&obj.Status, accepted)
}

// resend returns how long to wait before the own status is written again, because another
// writer has overwritten it; 0 if it was not written yet. The first repetition is immediate.
func (s *Sink) resend(e *entry, own *v1.PodStatus) time.Duration {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.sent != own || e.accepted == nil {
		e.resends = 0
		return 0
	}
	if now.Sub(e.resent) > 6*s.opts.RetryMax {
		e.resends = 0
	}
	if wait := e.resent.Add(s.backoff.After(e.resends)).Sub(now); wait > 0 {
		return wait
	}
	e.resends++
	e.resent = now
	return 0
}

// refuse records that the server refuses the own status.
func (s *Sink) refuse(e *entry, own *v1.PodStatus, err error) {
	s.log.Error(err, "The API server refuses a pod's status as invalid; it is sent again when it changes, and after a while", "pod", e.String(), "fields", fields(err), "after", invalidPeriod)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.refused, e.refusedAt = own, time.Now()
	s.plan(e, e.refusedAt.Add(invalidPeriod))
	s.poke()
}

// isRefused reports whether the server has refused the own status lately, and has Run look
// again when it is to be sent again.
func (s *Sink) isRefused(e *entry, own *v1.PodStatus) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := e.refusedAt.Add(invalidPeriod)
	if e.refused != own || !time.Now().Before(again) {
		return false
	}
	s.plan(e, again)
	s.poke()
	return true
}

// replaced reports whether another static pod has taken the name.
func (s *Sink) replaced(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.static[e.name] != e.uid
}

// look has Run look at the entry again, at first soon: the end of a pod is often known just
// after its last status.
func (s *Sink) look(e *entry) {
	s.mu.Lock()
	e.looks++
	wait := backoff.Exponential{Min: minLookPeriod, Max: maxLookPeriod}.After(e.looks)
	s.mu.Unlock()
	s.later(e, wait)
}

// later has Run look at the entry after the duration.
func (s *Sink) later(e *entry, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.forgotten {
		s.plan(e, time.Now().Add(d))
	}
	s.poke()
}
