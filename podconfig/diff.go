package podconfig

import (
	"bytes"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// comparer compares pods. It is not safe for concurrent use.
type comparer struct {
	a, b []byte // buffers for encodings
}

// message is a part of a pod that has a protobuf encoding.
type message interface {
	Size() int
	MarshalToSizedBuffer(data []byte) (int, error)
}

// compare returns the operation that leads from one version of a UID to another; 0 if
// they are the same. Either may be nil: there is no pod.
func (c *comparer) compare(from, to *version) Op {
	switch {
	case from == to:
		return 0
	case from == nil:
		return Add
	case to == nil || fullNameOf(from.pod) != fullNameOf(to.pod):
		return Remove
	}
	op := c.difference(from.pod, to.pod, from.spec == to.spec)
	if op != Update && op != Delete && from.offer.source.name != to.offer.source.name {
		op = specOp(to.pod)
	}
	return op
}

// difference returns the operation that leads from one pod to another of the same UID
// and full name; 0 if they are the same. same means that their specs are known to be equal.
func (c *comparer) difference(from, to *v1.Pod, same bool) Op {
	switch {
	case !sameMetadata(from, to) || !same && !c.sameMessage(&from.Spec, &to.Spec):
		return specOp(to)
	case !c.sameMessage(&from.Status, &to.Status):
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

// sameMetadata reports whether two pods are equal in their labels, deletion and
// annotations, except for the annotations that are set on the node.
func sameMetadata(a, b *v1.Pod) bool {
	return sameAnnotations(a.Annotations, b.Annotations) &&
		maps.Equal(a.Labels, b.Labels) &&
		sameDeletion(a, b)
}

func sameDeletion(a, b *v1.Pod) bool {
	return a.DeletionTimestamp.Equal(b.DeletionTimestamp) && ptr.Equal(a.DeletionGracePeriodSeconds,
		b.DeletionGracePeriodSeconds)
}

// sameMessage reports whether two values are semantically equal. It compares their
// protobuf encodings first: equal values nearly always have equal encodings, and
// encoding both takes a tenth of the time of a deep comparison.
func (c *comparer) sameMessage(a, b message) bool {
	if size := a.Size(); size == b.Size() {
		c.a, c.b = slices.Grow(c.a[:0], size)[:size], slices.Grow(c.b[:0], size)[:size]
		_, errA := a.MarshalToSizedBuffer(c.a)
		_, errB := b.MarshalToSizedBuffer(c.b)
		if errA == nil && errB == nil && bytes.Equal(c.a, c.b) {
			return true
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}

// sameAnnotations ignores the annotations that are set on the node.
func sameAnnotations(a, b map[string]string) bool {
	count := func(annotations map[string]string) int {
		n := len(annotations)
		for _, key := range localAnnotations {
			if _, ok := annotations[key]; ok {
				n--
			}
		}
		return n
	}
	if count(a) != count(b) {
		return false
	}
	for key, value := range a {
		if slices.Contains(localAnnotations[:], key) {
			continue
		}
		if other, ok := b[key]; !ok || other != value {
			return false
		}
	}
	return true
}

// localAnnotations are set on the node, and so are not part of what a source delivers.
var localAnnotations = [...]string{
	podspec.AnnotationConfigSource,
	podspec.AnnotationConfigSeen,
	podspec.AnnotationConfigMirror,
}
