package podstatus

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// syncPod writes the status of a pod of the API server, and deletes the pod if it has
// ended. wait is more than 0 if the status is to be delivered again after that time.
func (s *Sink) syncPod(ctx context.Context, e *entry) (wait time.Duration, err error) {
	watched, ok := s.pods.ByUID(e.uid)
	switch {
	case ok:
	case s.pods.Synced():
		return 0, fmt.Errorf("pod %s: %w", e, status.ErrGone)
	default:
		return checkPeriod, nil
	}
	obj, wait, err := s.write(ctx, e, s.known(e, watched))
	if err != nil && !errors.Is(err, status.ErrRefused) {
		return 0, err
	}
	check, finishErr := s.finish(ctx, e, obj)
	if finishErr != nil {
		return 0, finishErr
	}
	return flow.Soonest(wait, check), err
}

// finish deletes the API object if its deletion was requested and the pod has ended. check is more than 0 if
// that is to be checked again after that time.
func (s *Sink) finish(ctx context.Context, e *entry, obj *v1.Pod) (check time.Duration, err error) {
	s.mu.Lock()
	refused := !e.refusedAt.IsZero() && time.Since(e.refusedAt) >= enoughRefusals
	collides := s.static[e.name] != ""
	s.mu.Unlock()
	switch {
	case obj.DeletionTimestamp == nil || onlyFinalizers(obj):
		return 0, nil
	case !podspec.IsPhaseTerminal(obj.Status.Phase) && !(refused && podspec.IsPhaseTerminal(e.own.Phase)):
		return 0, nil // its status is to be written
	case s.opts.Ended(e.uid):
		return 0, s.removeOnce(ctx, e, obj)
	case collides: // the pod does not reach the agent, and its end is no event
		return checkPeriod, nil
	}
	return 0, nil
}

// onlyFinalizers reports whether the API object is deleted, and the server removes it with the last finalizer.
func onlyFinalizers(obj *v1.Pod) bool {
	grace := obj.DeletionGracePeriodSeconds
	return obj.DeletionTimestamp != nil && grace != nil && *grace == 0
}

// removeOnce deletes an API object of the pod. While finalizers keep it, there are no further calls.
func (s *Sink) removeOnce(ctx context.Context, e *entry, obj *v1.Pod) error {
	if e.deleted == obj.UID {
		return nil
	}
	if err := s.remove(ctx, obj); err != nil {
		return err
	}
	if e.static {
		s.log.Info("Deleted a mirror pod that is out of date", "pod", e.String())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.deleted = obj.UID
	return nil
}

// write patches the status of the API object, if it differs, and returns the object after the patch, or
// how long the patch waits. If the error wraps [status.ErrRefused], the object is returned, too. The status of a
// mirror pod has the generations of the static pod, as with kubelet.
func (s *Sink) write(ctx context.Context, e *entry, obj *v1.Pod) (*v1.Pod, time.Duration, error) {
	own := e.own
	if s.isAccepted(e, obj, own) {
		return obj, 0, nil
	}
	to := mergePodStatus(&obj.Status, own)
	data, err := patch(obj.UID, &obj.Status, &to)
	if err != nil {
		return nil, 0, fmt.Errorf("pod %s: %w", e, err)
	}
	if data == nil {
		s.wrote(e, &obj.Status, own)
		return obj, 0, nil
	}
	if wait := s.postpone(e, obj, &to); wait > 0 {
		return obj, wait, nil
	}
	if wait := s.resend(e, own); wait > 0 {
		return obj, wait, nil
	}
	if own.Phase != to.Phase {
		s.log.Info("The phase in the API server stays, because it would go back", "pod", e.String(), "phase", to.Phase,
			"refused", own.Phase)
	}
	var answered *v1.Pod
	err = s.call(ctx, func(ctx context.Context) (err error) {
		answered, err = s.client.CoreV1().Pods(obj.Namespace).Patch(ctx, obj.Name, types.StrategicMergePatchType, data,
			metav1.PatchOptions{}, "status")
		return err
	})
	if err == nil {
		s.answered(e, answered)
		if overwritten(&obj.Status, &to, &answered.Status) {
			s.wrote(e, &to, own)
			return s.write(ctx, e, answered) // resend limits it
		}
		s.wrote(e, &answered.Status, own)
		return answered, 0, nil
	}
	switch answerOf(err) {
	case gone:
		s.mu.Lock()
		e.answered = nil
		s.mu.Unlock()
		return nil, 0, fmt.Errorf("pod %s: writing its status: %w: %w", e, status.ErrGone, err)
	case invalid:
		s.refused(e)
		return obj, 0, fmt.Errorf("pod %s: writing its status: %w: %w", e, status.ErrRefused, err)
	}
	return nil, 0, fmt.Errorf("pod %s: writing its status: %w", e, err)
}
