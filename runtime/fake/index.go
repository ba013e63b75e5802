package fake

import (
	"cmp"
	"slices"

	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// index holds sandboxes or containers by ID and by pod, so that the cost of a query for
// one pod does not depend on the number of pods. The service's mu guards it.
type index[T indexed] struct {
	byID map[string]T
	// all, and those of each pod by the label with its UID, are in the order of their
	// creation.
	all   []T
	byPod map[string][]T
}

// indexed has the number and the ID that newID has returned, and labels that do not
// change.
type indexed interface {
	comparable
	key() (seq int, id string)
	labels() map[string]string
}

func newIndex[T indexed]() index[T] {
	return index[T]{byID: map[string]T{}, byPod: map[string][]T{}}
}

// add adds an item that is newer than all others.
func (x *index[T]) add(item T) {
	_, id := item.key()
	x.byID[id] = item
	x.all = append(x.all, item)
	uid := item.labels()[crimeta.LabelPodUID]
	x.byPod[uid] = append(x.byPod[uid], item)
}

func (x *index[T]) remove(item T) {
	seq, id := item.key()
	delete(x.byID, id)
	i, _ := slices.BinarySearchFunc(x.all, seq, func(other T, seq int) int {
		n, _ := other.key()
		return cmp.Compare(n, seq)
	})
	x.all = slices.Delete(x.all, i, i+1)
	uid := item.labels()[crimeta.LabelPodUID]
	if x.byPod[uid] = remove(x.byPod[uid], item); len(x.byPod[uid]) == 0 {
		delete(x.byPod, uid)
	}
}

// candidates returns a superset of the items with the ID, unless it is empty, and with
// the labels of the selector, in their order. The list is valid until mu is released.
func (x *index[T]) candidates(id string, selector map[string]string) []T {
	if id != "" {
		if item, ok := x.byID[id]; ok {
			return []T{item}
		}
		return nil
	}
	if uid := selector[crimeta.LabelPodUID]; uid != "" {
		return x.byPod[uid]
	}
	return x.all
}

// about returns a superset of the items that the target matches. The list is valid
// until mu is released.
func (x *index[T]) about(t Target) []T {
	if list := x.byPod[string(t.UID)]; t.UID != "" && len(list) > 0 {
		return list
	}
	return x.all // a pod without kubelet's labels has its UID only in the metadata
}

// selectSandboxes returns the sandboxes with the ID, unless it is empty, and the
// labels. mu is held.
func (s *service) selectSandboxes(id string, labels map[string]string) []*sandbox {
	var out []*sandbox
	for _, sb := range s.sandboxes.candidates(id, labels) {
		if selects(labels, sb.labels()) {
			out = append(out, sb)
		}
	}
	return out
}

// selectContainers returns the containers with the ID and in the sandbox, unless these
// are empty, and with the labels. mu is held.
func (s *service) selectContainers(id, sandboxID string, labels map[string]string) []*container {
	candidates := s.containers.candidates(id, labels)
	if sb := s.sandboxes.byID[sandboxID]; sb != nil && id == "" {
		candidates = sb.containers
	}
	var out []*container
	for _, c := range candidates {
		if (sandboxID == "" || sandboxID == c.sandbox.id) && selects(labels, c.labels()) {
			out = append(out, c)
		}
	}
	return out
}

func (sb *sandbox) key() (int, string)        { return sb.seq, sb.id }
func (sb *sandbox) labels() map[string]string { return sb.config.GetLabels() }

func (c *container) key() (int, string)        { return c.seq, c.id }
func (c *container) labels() map[string]string { return c.config.GetLabels() }
