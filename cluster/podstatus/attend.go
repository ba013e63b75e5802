package podstatus

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// errLater means that the pod waits for something, and that Run goes on when it has come.
var errLater = errors.New("podstatus: not yet")

// attend brings the API object up to date: it writes the status of the pod, and deletes the object of
// a pod that has ended. The error is nil, errLater, wraps [status.ErrGone], or is the error of a call.
func (s *Sink) attend(ctx context.Context, e *entry) error {
	done, err := e.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	return s.attendNow(ctx, e)
}

// attendNow is attend in the turn of the entry.
func (s *Sink) attendNow(ctx context.Context, e *entry) (err error) {
	s.mu.Lock()
	forgotten, pod, own, allowed := e.forgotten, e.pod, e.own, s.allows(e)
	s.mu.Unlock()
	switch {
	case forgotten:
		return nil
	case !allowed:
		return errLater
	case e.kind == ofStatic:
		err = s.attendMirror(ctx, e, pod, own)
	case e.kind == ofMirror:
		err = s.attendOrphan(ctx, e)
	default:
		err = s.attendPod(ctx, e, own)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.unsent = err != nil && !errors.Is(err, status.ErrGone)
	if e.unsent && !errors.Is(err, errLater) {
		e.failures++
		e.tried = own
		if barred := (*barredError)(nil); !errors.As(err, &barred) { // else the server is not at fault
			s.failed(e, time.Now())
		}
	} else {
		e.failures = 0
	}
	return err
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
	deleted, refused := e.deleted == obj.UID, own != nil && e.refused == own && e.refusals > 1 && time.Since(e.refusedAt) >= enoughRefusals
	s.mu.Unlock()
	if deleted {
		return nil
	}
	reported := own == nil || runtime.IsPhaseTerminal(obj.Status.Phase) || refused && runtime.IsPhaseTerminal(own.Phase)
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

// write patches the status of the API object, if it differs, and returns the object after the patch.
// own identifies the status, and as is the status for this object: it differs from own for a mirror pod.
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
	if wait := s.hold(e, obj, own, &to); wait > 0 {
		s.later(e, wait)
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
