package podstatus

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// call makes a call within the limit and with its deadline.
func (s *Sink) call(ctx context.Context, f func(ctx context.Context) error) error {
	if err := s.limit.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for the limit of calls: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return f(ctx)
}

// remove deletes the API object without a grace period. It is no error if it is gone. Only a read
// proves that: the admission plugin NodeRestriction answers 404 to a deletion while its own list of
// pods is not complete, and after a conflict either the UID is not that of the precondition, or there
// were too many writers at once.
func (s *Sink) remove(ctx context.Context, obj *v1.Pod) error {
	err := s.call(ctx, func(ctx context.Context) error {
		return s.client.CoreV1().Pods(obj.Namespace).Delete(ctx, obj.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0),
			Preconditions:      &metav1.Preconditions{UID: &obj.UID},
		})
	})
	if err == nil {
		return nil
	}
	switch answerOf(err) {
	case gone, conflict:
		var now *v1.Pod
		getErr := s.call(ctx, func(ctx context.Context) (err error) {
			now, err = s.client.CoreV1().Pods(obj.Namespace).Get(ctx, obj.Name, metav1.GetOptions{})
			return err
		})
		if getErr == nil && now.UID != obj.UID || getErr != nil && answerOf(getErr) == gone {
			return nil
		}
	}
	return fmt.Errorf("pod %s/%s (%s): deleting it from the API server: %w", obj.Namespace, obj.Name, obj.UID, err)
}
