package podmanager

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Manager holds the desired pods. Its methods are safe for concurrent use and do
// not block. Pods and slices are shared and must not be changed. [Store] is the default.
type Manager interface {
	// Set adds the pod, or replaces the pod of the same UID.
	Set(pod *v1.Pod)
	// Remove removes the pod or mirror pod that has the UID of the given pod. It does
	// nothing if there is none.
	Remove(pod *v1.Pod)
	// Pods returns the desired pods without mirror pods, sorted by namespace, name and
	// UID.
	Pods() []*v1.Pod
	// ByUID returns the pod of the UID. It never returns a mirror pod.
	ByUID(uid types.UID) (*v1.Pod, bool)

	// MirrorOf returns the mirror pod of a static pod.
	MirrorOf(pod *v1.Pod) (*v1.Pod, bool)
	// StaticOf returns the static pod of a mirror pod.
	StaticOf(mirror *v1.Pod) (*v1.Pod, bool)
	// TranslateUID returns the UID of the static pod if uid is that of its mirror pod.
	// Otherwise it returns uid.
	TranslateUID(uid types.UID) types.UID
	// Snapshot returns the whole state as of one moment.
	Snapshot() Desired
}

// Desired is the state of a [Manager] at one moment.
type Desired struct {
	// Pods are the desired pods, and Mirrors the mirror pods. Both are sorted by
	// namespace, name and UID.
	Pods, Mirrors []*v1.Pod
	// OrphanedMirrors are the mirror pods whose static pod is gone.
	OrphanedMirrors []*v1.Pod
}

var _ Manager = (*Store)(nil)
