package podstatus

import (
	"context"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// hashOf returns the hash of a static pod: kubernetes.io/config.hash, or its UID.
func hashOf(static *v1.Pod) string {
	if hash := static.Annotations[podspec.AnnotationConfigHash]; hash != "" {
		return hash
	}
	return string(static.UID)
}

// newMirror returns the mirror pod of a static pod. Its owner is the node, as the admission
// plugin NodeRestriction requires (KEP-1314).
func newMirror(static *v1.Pod, nodeName string, nodeUID types.UID) *v1.Pod {
	annotations := maps.Clone(static.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[podspec.AnnotationConfigMirror] = hashOf(static)
	mirror := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: static.Name, Namespace: static.Namespace, Labels: static.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: nodeUID, Controller: ptr.To(true)}},
		},
		Spec: static.Spec,
	}
	mirror.Spec.NodeName = nodeName
	return mirror
}

// usable reports whether the mirror pod can show the status. A mirror pod that is being
// deleted, that is of another version of the static pod, or whose phase would have to go
// back, is made anew.
func usable(mirror, static *v1.Pod, own *v1.PodStatus) bool {
	return mirror.DeletionTimestamp == nil &&
		mirror.Annotations[podspec.AnnotationConfigMirror] == hashOf(static) &&
		!(podspec.IsPhaseTerminal(mirror.Status.Phase) && !podspec.IsPhaseTerminal(own.Phase))
}

// mirrored returns the status for a mirror pod: a static pod has no generation of its own.
func mirrored(own v1.PodStatus, mirror *v1.Pod) v1.PodStatus {
	own.ObservedGeneration = mirror.Generation
	own.Conditions = append([]v1.PodCondition(nil), own.Conditions...)
	for i := range own.Conditions {
		own.Conditions[i].ObservedGeneration = mirror.Generation
	}
	return own
}

// syncMirror makes the mirror pod of a static pod and writes its status.
func (s *Sink) syncMirror(ctx context.Context, e *entry, static *v1.Pod, own *v1.PodStatus) (wait time.Duration, err error) {
	if s.opts.NodeUID == nil || s.replaced(e) {
		return 0, nil
	}
	if !s.pods.Synced() {
		return 0, errNotReady
	}
	watched, _ := s.pods.ByName(e.name.Namespace, e.name.Name)
	obj := s.known(e, watched)
	if obj != nil && podspec.IsMirror(obj) && !usable(obj, static, own) {
		if err := s.removeOnce(ctx, e, obj); err != nil {
			return 0, err
		}
		obj = nil
	}
	if obj == nil {
		nodeUID := s.opts.NodeUID()
		if nodeUID == "" { // it was deleted, and what it owned is deleted, too
			s.later(e, checkPeriod)
			return 0, errNotReady
		}
		s.mu.Lock()
		e.accepted, e.sent = nil, nil // of another object
		s.mu.Unlock()
		if obj, wait, err = s.create(ctx, e, newMirror(static, s.opts.NodeName, nodeUID), own); obj == nil {
			return wait, err
		}
	}
	if !podspec.IsMirror(obj) {
		return 0, s.bar(e, own, fmt.Errorf("static pod %s: it has no mirror pod, because another pod has its name: rename or delete one of them", e))
	}
	_, wait, err = s.write(ctx, e, obj, own, mirrored(*own, obj))
	return wait, err
}

// create creates the mirror pod and returns it. If a pod of the name exists that the watch
// has not delivered, create returns that one. It returns how long to wait if the server
// refuses the pod as invalid, and before a pod that it has refused is sent again.
func (s *Sink) create(ctx context.Context, e *entry, mirror *v1.Pod, own *v1.PodStatus) (obj *v1.Pod, wait time.Duration, err error) {
	if wait := s.isRefused(e, own); wait > 0 {
		return nil, wait, errNotReady
	}
	pods := s.client.CoreV1().Pods(mirror.Namespace)
	err = s.call(ctx, false, func(ctx context.Context) (err error) {
		obj, err = pods.Create(ctx, mirror, metav1.CreateOptions{})
		return err
	})
	if err == nil {
		s.answered(e, obj)
		s.log.V(2).Info("Created a mirror pod", "pod", e.String(), "mirrorUID", obj.UID)
		return obj, 0, nil
	}
	switch answerOf(err) {
	case invalid:
		return nil, s.refuse(e, own, err), nil
	case exists:
		if getErr := s.limited(ctx, false, func(ctx context.Context) (err error) {
			obj, err = pods.Get(ctx, mirror.Name, metav1.GetOptions{})
			return err
		}); getErr != nil {
			return nil, 0, fmt.Errorf("static pod %s: reading the pod that has the name of its mirror pod: %w", e, getErr)
		}
		if podspec.IsMirror(obj) && (obj.DeletionTimestamp != nil || obj.Annotations[podspec.AnnotationConfigMirror] != mirror.Annotations[podspec.AnnotationConfigMirror]) {
			return nil, 0, s.bar(e, own, fmt.Errorf("static pod %s: creating its mirror pod: an earlier one still exists: %w", e, err))
		}
		return obj, 0, nil
	case denied, gone: // the node may not have this mirror pod, or there is no such namespace
		return nil, 0, s.bar(e, own, fmt.Errorf("static pod %s: creating its mirror pod: %w", e, err))
	}
	return nil, 0, fmt.Errorf("static pod %s: creating its mirror pod: %w", e, err)
}

// barredError is an error that [Sink.bar] has recorded.
type barredError struct{ error }

func (e *barredError) Unwrap() error { return e.error }

// bar records that the static pod cannot have a mirror pod for a reason that concerns only this pod, and
// returns err. The mirror pod is created again after a while, when the status changes, when the watch
// delivers the end of the pod that has its name, and at the end of an outage.
func (s *Sink) bar(e *entry, own *v1.PodStatus, err error) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.refused != own {
		e.refusals, e.refusedAt = 0, now
	}
	e.refusals++
	e.refused, e.sendAgain = own, now.Add(flow.Backoff{Min: s.opts.RetryMin, Max: maxInvalidPeriod}.After(e.refusals))
	s.plan(e, e.sendAgain)
	s.poke()
	return &barredError{err}
}

// removeOnce deletes a mirror pod. While finalizers keep it, there are no further calls.
func (s *Sink) removeOnce(ctx context.Context, e *entry, obj *v1.Pod) error {
	s.mu.Lock()
	deleted := e.deleted == obj.UID
	s.mu.Unlock()
	if deleted {
		return nil
	}
	if err := s.remove(ctx, obj); err != nil {
		return err
	}
	s.log.Info("Deleted a mirror pod that is out of date or has no static pod", "pod", e.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	e.deleted = obj.UID
	return nil
}

// syncOrphan deletes a mirror pod for which no static pod has a status, if it has none.
func (s *Sink) syncOrphan(ctx context.Context, e *entry) error {
	obj, ok := s.pods.ByUID(e.uid)
	s.mu.Lock()
	if !ok || s.static[e.name] != "" || s.opts.Orphaned == nil {
		s.forget(e)
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	if !s.opts.Orphaned(e.name.Namespace, e.name.Name) {
		s.later(e, checkPeriod)
		return nil
	}
	return s.removeOnce(ctx, e, obj)
}

// replaced reports whether another static pod has taken the name.
func (s *Sink) replaced(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.static[e.name] != e.uid
}
