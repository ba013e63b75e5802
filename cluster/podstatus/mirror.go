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

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
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
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: nodeUID,
				Controller: ptr.To(true)}},
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

// syncMirror makes the mirror pod of a static pod and writes its status. wait is more than 0 if the status is to
// be delivered again after that time.
func (s *Sink) syncMirror(ctx context.Context, e *entry) (wait time.Duration, err error) {
	s.mu.Lock()
	replaced := s.static[e.name] != e.uid // by another static pod of the name
	s.mu.Unlock()
	switch {
	case s.opts.NodeUID == nil || replaced:
		return 0, nil
	case !s.pods.Synced():
		return checkPeriod, nil
	}
	watched, _ := s.pods.ByName(e.name.Namespace, e.name.Name)
	obj := s.known(e, watched)
	if obj != nil && podspec.IsMirror(obj) && (obj.UID == e.deleted || !usable(obj, e.pod, e.own)) {
		if err := s.removeOnce(ctx, e, obj); err != nil {
			return 0, err
		}
		obj = nil
	}
	if obj == nil {
		nodeUID := s.opts.NodeUID()
		if nodeUID == "" { // it was deleted, and what it owned is deleted, too
			return checkPeriod, nil
		}
		s.mu.Lock()
		e.accepted, e.sent = nil, nil // of another object
		s.mu.Unlock()
		if obj, err = s.create(ctx, e, newMirror(e.pod, s.opts.NodeName, nodeUID)); err != nil {
			return 0, err
		}
	}
	if !podspec.IsMirror(obj) {
		return 0, fmt.Errorf("static pod %s: it has no mirror pod, because another pod has its name: rename or "+
			"delete one of them: %w", e, status.ErrRefused)
	}
	_, wait, err = s.write(ctx, e, obj)
	return wait, err
}

// create creates the mirror pod and returns it. If a pod of the name exists that the watch
// has not delivered, create returns that one. The error wraps [status.ErrRefused] if the static pod cannot have
// a mirror pod for a reason that concerns only this pod.
func (s *Sink) create(ctx context.Context, e *entry, mirror *v1.Pod) (obj *v1.Pod, err error) {
	pods := s.client.CoreV1().Pods(mirror.Namespace)
	err = s.call(ctx, func(ctx context.Context) (err error) {
		obj, err = pods.Create(ctx, mirror, metav1.CreateOptions{})
		return err
	})
	if err == nil {
		s.answered(e, obj)
		s.log.V(2).Info("Created a mirror pod", "pod", e.String(), "mirrorUID", obj.UID)
		return obj, nil
	}
	switch answerOf(err) {
	case exists:
		if getErr := s.call(ctx, func(ctx context.Context) (err error) {
			obj, err = pods.Get(ctx, mirror.Name, metav1.GetOptions{})
			return err
		}); getErr != nil {
			return nil, fmt.Errorf("static pod %s: reading the pod that has the name of its mirror pod: %w", e, getErr)
		}
		if podspec.IsMirror(obj) && (obj.DeletionTimestamp != nil ||
			obj.Annotations[podspec.AnnotationConfigMirror] != mirror.Annotations[podspec.AnnotationConfigMirror]) {
			return nil, fmt.Errorf("static pod %s: creating its mirror pod: an earlier one still exists: %w: %w", e,
				status.ErrRefused, err)
		}
		return obj, nil
	case invalid, denied, gone: // or the node may not have this mirror pod, or there is no such namespace
		return nil, fmt.Errorf("static pod %s: creating its mirror pod: %w: %w", e, status.ErrRefused, err)
	}
	return nil, fmt.Errorf("static pod %s: creating its mirror pod: %w", e, err)
}
