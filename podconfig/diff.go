package podconfig

import (
	"bytes"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// compare returns the operation that leads from one version of a UID to another; 0 if
// they are the same. The pod of either may be nil: there is none.
func compare(from, to version) Op {
	switch {
	case from == to:
		return 0
	case from.pod == nil:
		return Add
	case to.pod == nil || fullNameOf(from.pod) != fullNameOf(to.pod):
		return Remove
	}
	op := difference(from.pod, to.pod)
	if op != Update && op != Delete && from.source.name != to.source.name {
		op = specOp(to.pod)
	}
	return op
}

// difference returns the operation that leads from one pod to another of the same UID
// and full name; 0 if they are the same.
func difference(from, to *v1.Pod) Op {
	switch {
	case !sameSpec(from, to):
		return specOp(to)
	case !sameEncoding(&from.Status, &to.Status):
		return Reconcile
	default:
		return 0
	}
}

// specOp is the operation for a pod that has changed in more than its status.
func specOp(pod *v1.Pod) Op {
	if pod.DeletionTimestamp != nil {
		return Delete
	}
	return Update
}

// sameSpec reports whether two pods are equal in their spec, labels, deletion and
// annotations, except for the annotations that are set on the node.
func sameSpec(a, b *v1.Pod) bool {
	return sameAnnotations(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.DeletionTimestamp, b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		sameEncoding(&a.Spec, &b.Spec)
}

// sameEncoding reports whether two values are semantically equal. It compares their
// protobuf encodings first: equal values nearly always have equal encodings, and
// encoding both takes a tenth of the time of a deep comparison.
func sameEncoding[T interface{ Marshal() ([]byte, error) }](a, b T) bool {
	x, errX := a.Marshal()
	y, errY := b.Marshal()
	if errX == nil && errY == nil && bytes.Equal(x, y) {
		return true
	}
	return equality.Semantic.DeepEqual(a, b)
}

// sameAnnotations ignores the annotations that are set on the node.
func sameAnnotations(a, b map[string]string) bool {
	count := func(annotations map[string]string) (n int) {
		for key := range annotations {
			if !isLocal(key) {
				n++
			}
		}
		return n
	}
	if count(a) != count(b) {
		return false
	}
	for key, value := range a {
		if isLocal(key) {
			continue
		}
		if other, ok := b[key]; !ok || other != value {
			return false
		}
	}
	return true
}

// isLocal reports whether an annotation is set on the node, and so is not part of what
// a source delivers.
func isLocal(key string) bool {
	switch key {
	case runtime.AnnotationConfigSource, runtime.AnnotationConfigSeen, runtime.AnnotationConfigMirror:
		return true
	}
	return false
}
