package file

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// union is the pods of all files, each once. Where two files have a pod of the
// same name or UID, the one that had it first keeps it, so that a new file does
// not end a running pod; between new ones the file names decide.
type union struct {
	pods []*v1.Pod
	// holders are the files that have each pod, by full name and by UID.
	holders holders
	// conflicts are the files with pods that are left out, and why.
	conflicts map[string]error
}

type holders struct {
	names map[string]string
	uids  map[types.UID]string
}

// update makes the union that of the files and reports whether its pods changed.
func (u *union) update(files map[string]*manifest) (changed bool) {
	paths := slices.Sorted(maps.Keys(files))
	next := holders{map[string]string{}, map[types.UID]string{}}
	taken := map[*v1.Pod]bool{}
	take := func(path string, pod *v1.Pod) {
		taken[pod] = true
		next.names[runtime.RefOf(pod).FullName()] = path
		next.uids[pod.UID] = path
	}
	free := func(pod *v1.Pod) (by, what string) {
		if by, ok := next.names[runtime.RefOf(pod).FullName()]; ok {
			return by, "name"
		}
		if by, ok := next.uids[pod.UID]; ok {
			return by, "UID"
		}
		return "", ""
	}
	for _, path := range paths {
		for _, pod := range files[path].pods {
			by, _ := free(pod)
			if by == "" && u.holders.names[runtime.RefOf(pod).FullName()] == path {
				take(path, pod)
			}
		}
	}
	u.conflicts = map[string]error{}
	for _, path := range paths {
		for _, pod := range files[path].pods {
			if taken[pod] {
				continue
			}
			if by, what := free(pod); by != "" {
				u.conflicts[path] = conflict(pod, what, by)
				continue
			}
			take(path, pod)
		}
	}
	u.holders = next

	var pods []*v1.Pod
	for _, path := range paths {
		for _, pod := range files[path].pods {
			if taken[pod] {
				pods = append(pods, pod)
			}
		}
	}
	changed = !slices.Equal(pods, u.pods)
	u.pods = pods
	return changed
}

func conflict(pod *v1.Pod, what, by string) error {
	field, value := "metadata.name", pod.Namespace+"/"+pod.Name
	if what == "UID" {
		field, value = "metadata.uid", string(pod.UID)
	}
	return fmt.Errorf("%s: Duplicate value: %q: pod %s is left out because %s has a pod of the same %s; remove one of them",
		field, value, runtime.RefOf(pod), filepath.Base(by), what)
}
