package podsource

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// table has the pods of the node. Its methods return what they have changed. A pod that is
// in it never changes.
type table struct {
	byUID  map[types.UID]*v1.Pod
	byName map[types.NamespacedName]*v1.Pod
	// version is the newest resource version of a list or an event.
	version string
}

func newTable() *table {
	return &table{byUID: map[types.UID]*v1.Pod{}, byName: map[types.NamespacedName]*v1.Pod{}}
}

func nameOf(pod *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// replace makes the table the list, which is complete. Of a pod that has not changed, the
// object that is held stays. A list with an older version than the table is not refused: the
// reflector requests one only if the server has lost the newer version, as after a restore of
// its database.
func (t *table) replace(list []*v1.Pod, version string) Change {
	c := Change{Complete: true}
	older := before(version, t.version)
	next := newTable()
	next.version = version
	for _, pod := range list {
		held := t.byUID[pod.UID]
		if held != nil && !older && held.ResourceVersion == pod.ResourceVersion && pod.ResourceVersion != "" {
			pod = held
		} else {
			c.Changed = append(c.Changed, pod)
		}
		next.byUID[pod.UID], next.byName[nameOf(pod)] = pod, pod
	}
	for uid, pod := range t.byUID {
		if _, stays := next.byUID[uid]; !stays {
			c.Removed = append(c.Removed, pod)
		}
	}
	*t = *next
	return c
}

// set adds the pod or replaces it, unless it is old.
func (t *table) set(pod *v1.Pod) (c Change) {
	held := t.byName[nameOf(pod)]
	switch {
	case held == nil && before(pod.ResourceVersion, t.version):
		return c // its removal is newer
	case held != nil && held.UID != pod.UID && before(pod.ResourceVersion, held.ResourceVersion):
		return c // a predecessor
	case held != nil && held.UID == pod.UID && !supersedes(pod, held):
		return c
	case held != nil && held.UID != pod.UID:
		delete(t.byUID, held.UID)
		c.Removed = []*v1.Pod{held}
	}
	t.byUID[pod.UID], t.byName[nameOf(pod)] = pod, pod
	c.Changed = []*v1.Pod{pod}
	t.advance(pod.ResourceVersion)
	return c
}

// remove removes the pod. A pod of the same name and another UID stays.
func (t *table) remove(pod *v1.Pod) (c Change) {
	t.advance(pod.ResourceVersion)
	held := t.byName[nameOf(pod)]
	if held == nil || held.UID != pod.UID {
		return c
	}
	delete(t.byUID, held.UID)
	delete(t.byName, nameOf(held))
	c.Removed = []*v1.Pod{held}
	return c
}

func (t *table) advance(version string) {
	if !before(version, t.version) {
		t.version = version
	}
}

// pods returns the pods for which keep returns true, in no order.
func (t *table) pods(keep func(*v1.Pod) bool) []*v1.Pod {
	out := make([]*v1.Pod, 0, len(t.byUID))
	for _, pod := range t.byUID {
		if keep(pod) {
			out = append(out, pod)
		}
	}
	return out
}

// before reports whether resource version a is older than b. It returns false if they
// cannot be compared.
func before(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// supersedes reports whether pod is newer than held, another object of the same UID.
func supersedes(pod, held *v1.Pod) bool {
	if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, held.ResourceVersion); err == nil {
		return order > 0
	}
	switch {
	case pod.ResourceVersion == held.ResourceVersion && pod.ResourceVersion != "":
		return false
	case pod.Generation < held.Generation:
		return false
	default: // the deletion of a pod is never taken back
		return held.DeletionTimestamp == nil || pod.DeletionTimestamp != nil
	}
}
