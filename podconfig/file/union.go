package file

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// union holds the items of all files, pods or objects, each once. If two files have an
// item of the same name or UID, the file that had it first keeps it, so that a new file
// does not end a running pod. Between two new files, the first file name wins.
type union[T comparable] struct {
	// of returns the items of a file.
	of func(m *manifestFile) []T
	// keys returns what must be unique. The second key may be empty.
	keys func(item T) [2]key
	// about returns the item's name for messages.
	about func(item T) string

	items []T
	// holders are the paths of the files that have the items, by key.
	holders map[key]string
	// conflicts are the errors of files with items that are left out, by path.
	conflicts map[string]error
}

// key is a field of an item whose value must be unique.
type key struct{ kind, field, namespace, value string }

func newPodUnion() union[*v1.Pod] {
	return union[*v1.Pod]{
		of: func(m *manifestFile) []*v1.Pod {
			if !m.awayUntil.IsZero() {
				return nil
			}
			return m.pods
		},
		keys: func(pod *v1.Pod) [2]key {
			return [2]key{
				{manifest.PodKind, "metadata.name", pod.Namespace, pod.Name},
				{manifest.PodKind, "metadata.uid", "", string(pod.UID)},
			}
		},
		about: func(pod *v1.Pod) string { return "pod " + runtime.RefOf(pod).String() },
	}
}

func newObjectUnion() union[metav1.Object] {
	return union[metav1.Object]{
		of: func(m *manifestFile) []metav1.Object { return m.objects },
		keys: func(object metav1.Object) [2]key {
			ref := objects.RefOf(object)
			return [2]key{{ref.Kind, "metadata.name", ref.Namespace, ref.Name}}
		},
		about: func(object metav1.Object) string { return objects.RefOf(object).String() },
	}
}

// has reports whether a file has the item's name or UID.
func (u *union[T]) has(item T) bool {
	for _, k := range u.keys(item) {
		if _, ok := u.holders[k]; ok && k != (key{}) {
			return true
		}
	}
	return false
}

// update recomputes the union and reports whether its items have changed.
func (u *union[T]) update(files map[string]*manifestFile) (changed bool) {
	paths := slices.Sorted(maps.Keys(files))
	next := map[key]string{}
	taken := map[T]bool{}
	take := func(path string, item T) {
		taken[item] = true
		for _, k := range u.keys(item) {
			if k != (key{}) {
				next[k] = path
			}
		}
	}
	// rival returns the path of the file that has a key of the item, and the key.
	rival := func(item T) (path string, what key) {
		for _, k := range u.keys(item) {
			if path, ok := next[k]; ok {
				return path, k
			}
		}
		return "", key{}
	}
	for _, path := range paths {
		for _, item := range u.of(files[path]) {
			by, _ := rival(item)
			if by == "" && u.holders[u.keys(item)[0]] == path {
				take(path, item)
			}
		}
	}
	u.conflicts = map[string]error{}
	for _, path := range paths {
		for _, item := range u.of(files[path]) {
			if taken[item] {
				continue
			}
			if by, what := rival(item); by != "" {
				u.conflicts[path] = u.conflict(item, what, by)
				continue
			}
			take(path, item)
		}
	}
	u.holders = next

	var items []T
	for _, path := range paths {
		for _, item := range u.of(files[path]) {
			if taken[item] {
				items = append(items, item)
			}
		}
	}
	changed = !slices.Equal(items, u.items)
	u.items = items
	return changed
}

func (u *union[T]) conflict(item T, what key, by string) error {
	value := what.value
	if what.namespace != "" {
		value = what.namespace + "/" + value
	}
	err := fmt.Errorf("%s: Duplicate value: %q: %s is left out because %s has the same; remove one of them",
		what.field, value, u.about(item), filepath.Base(by))
	if pod, ok := any(item).(*v1.Pod); ok {
		return &conflictError{pod: runtime.RefOf(pod), error: err}
	}
	return err
}

// conflictError is the error of a pod that another file has.
type conflictError struct {
	pod runtime.PodRef
	error
}
