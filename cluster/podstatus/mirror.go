package podstatus

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// hashOf returns the hash of a static pod: kubernetes.io/config.hash, or its UID.
func hashOf(static *v1.Pod) string {
	if hash := static.Annotations[runtime.AnnotationConfigHash]; hash != "" {
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
	annotations[runtime.AnnotationConfigMirror] = hashOf(static)
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
		mirror.Annotations[runtime.AnnotationConfigMirror] == hashOf(static) &&
		!(final(mirror.Status.Phase) && !final(own.Phase))
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
