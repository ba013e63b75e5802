package podstatus

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// errNotReady means that the pod waits for the list of pods, the registration of the node, or the end of an
// outage, and that Run goes on after it.
var errNotReady = errors.New("podstatus: not ready")

// sync brings the API object up to date: it writes the status of the pod, and deletes the object of
// a pod that has ended. wait is more than 0 if the status is to be written later, by Run. The error is nil,
// errNotReady, wraps [status.ErrGone], or is the error of a call.
func (s *Sink) sync(ctx context.Context, e *entry) (wait time.Duration, err error) {
	done, err := e.take(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	return s.syncLocked(ctx, e)
}

// syncLocked is sync while no other call for the pod is under way.
func (s *Sink) syncLocked(ctx context.Context, e *entry) (wait time.Duration, err error) {
	s.mu.Lock()
	forgotten, pod, own, allowed := e.forgotten, e.pod, e.own, s.allows(e)
	s.mu.Unlock()
	switch {
	case forgotten:
		return 0, nil
	case !allowed:
		return 0, errNotReady
	case e.kind == ofStatic:
		wait, err = s.syncMirror(ctx, e, pod, own)
	case e.kind == ofMirror:
		err = s.syncOrphan(ctx, e)
	default:
		wait, err = s.syncPod(ctx, e, own)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.unsent = err != nil && !errors.Is(err, status.ErrGone)
	if e.unsent && !errors.Is(err, errNotReady) {
		e.failures++
		e.tried = own
		if barred := (*barredError)(nil); !errors.As(err, &barred) { // else the server is not at fault
			s.failed(e, time.Now())
		}
	} else {
		e.failures = 0
	}
	return wait, err
}

// syncPod writes the status of a pod of the API server, and deletes the pod if it has
// ended. own is nil if the agent has no status of it.
func (s *Sink) syncPod(ctx context.Context, e *entry, own *v1.PodStatus) (wait time.Duration, err error) {
	watched, ok := s.pods.ByUID(e.uid)
	switch {
	case ok:
	case s.pods.Synced():
		return 0, fmt.Errorf("pod %s: %w", e, status.ErrGone)
	default:
		return 0, errNotReady
	}
	obj := s.known(e, watched)
	if own != nil {
		if obj, wait, err = s.write(ctx, e, obj, own, *own); err != nil {
			return 0, err
		}
	}
	return wait, s.finish(ctx, e, obj, own)
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
	deleted, refused := e.deleted == obj.UID, own != nil && e.refused == own && e.refusals > 1 && time.Since(e.refusedAt) >= enoughRefusals
	s.mu.Unlock()
	if deleted {
		return nil
	}
	reported := own == nil || podspec.IsPhaseTerminal(obj.Status.Phase) || refused && podspec.IsPhaseTerminal(own.Phase)
	if !reported {
		return nil // its status is written by Run
	}
	if !s.opts.Ended(e.uid) {
		if own == nil || s.collides(e) {
			s.later(e, checkPeriod)
		}
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

// write patches the status of the API object, if it differs, and returns the object after the patch, or
// how long the patch waits.
// own identifies the status, and as is the status for this object: it differs from own for a mirror pod.
func (s *Sink) write(ctx context.Context, e *entry, obj *v1.Pod, own *v1.PodStatus, as v1.PodStatus) (*v1.Pod, time.Duration, error) {
	if wait := s.isRefused(e, own); wait > 0 {
		return obj, wait, nil
	}
	if s.isAccepted(e, obj, own) {
		return obj, 0, nil
	}
	to := merge(&obj.Status, &as)
	data, err := patch(obj.UID, &obj.Status, &to)
	if err != nil {
		return nil, 0, fmt.Errorf("pod %s: %w", e, err)
	}
	if data == nil {
		s.wrote(e, obj, own)
		return obj, 0, nil
	}
	if wait := s.hold(e, obj, own, &to); wait > 0 {
		s.later(e, wait)
		return obj, wait, nil
	}
	if wait := s.resend(e, own); wait > 0 {
		s.later(e, wait)
		return obj, wait, nil
	}
	if as.Phase != to.Phase {
		s.log.Info("The phase in the API server stays, because it would go back", "pod", e.String(), "phase", to.Phase, "refused", as.Phase)
	}
	var answered *v1.Pod
	hurry := s.urgent(e, &obj.Status, &to)
	err = s.call(ctx, hurry, func(ctx context.Context) (err error) {
		answered, err = s.client.CoreV1().Pods(obj.Namespace).Patch(ctx, obj.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
		return err
	})
	if err == nil {
		if hurry {
			s.hurried(e)
		}
		s.answered(e, answered)
		s.unrefuse(e, own)
		s.wrote(e, answered, own)
		return answered, 0, nil
	}
	switch answerOf(err) {
	case gone:
		s.mu.Lock()
		e.answered = nil
		s.mu.Unlock()
		return nil, 0, fmt.Errorf("pod %s: writing its status: %w: %w", e, status.ErrGone, err)
	case invalid:
		return obj, s.refuse(e, own, err), nil
	}
	return nil, 0, fmt.Errorf("pod %s: writing its status: %w", e, err)
}
