package podstatus

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// call makes a call in its turn and with its deadline. When a call succeeds after a failure,
// all that failed is put on the agenda, at most once in probePeriod: a server that fails some
// calls only is not asked more often for those that succeed.
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
	if s.down && err == nil {
		at := time.Now()
		if earliest := s.resent.Add(probePeriod); at.Before(earliest) {
			at = earliest
		}
		s.resent = at
		for _, e := range s.entries {
			if e.unsent {
				s.plan(e, at)
			}
		}
		s.poke()
	}
	s.down = down
	return err
}

// remove deletes the API object without a grace period. It is no error if it is gone. After a
// conflict it is read: either its UID is not that of the precondition, or there were too many
// writers at once.
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
	switch answerOf(err) {
	case gone:
		return nil
	case conflict:
		var now *v1.Pod
		getErr := s.call(ctx, true, func(ctx context.Context) (err error) {
			now, err = s.client.CoreV1().Pods(obj.Namespace).Get(ctx, obj.Name, metav1.GetOptions{})
			return err
		})
		if getErr == nil && now.UID != obj.UID || getErr != nil && answerOf(getErr) == gone {
			return nil
		}
	}
	return fmt.Errorf("pod %s/%s (%s): deleting it from the API server: %w", obj.Namespace, obj.Name, obj.UID, err)
}

// probeWith has Run try one pod every probePeriod while the server is down, whatever the
// back-off of the pods is. s.mu is held.
func (s *Sink) probeWith(e *entry) {
	switch {
	case s.down && e.failures > 0 && (s.probe == nil || s.probe == e || s.probe.forgotten):
		s.probe = e
		s.plan(e, time.Now().Add(probePeriod))
		s.poke()
	case s.probe == e:
		s.probe = nil
	}
}
