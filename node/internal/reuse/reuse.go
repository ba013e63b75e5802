// Package reuse tells which resources of init containers a later container of the pod uses again.
package reuse

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Ended returns the init containers that have ended when the container starts, which are all before it but sidecars.
func Ended(spec *v1.PodSpec, container string) (names []string) {
	for kind, c := range podspec.Containers(spec) {
		if c.Name == container {
			break
		}
		if ends(kind, c) {
			names = append(names, c.Name)
		}
	}
	return names
}

// ends reports whether the container has ended before later ones start.
func ends(kind podspec.ContainerKind, c *v1.Container) bool {
	return kind == podspec.InitContainer && !podspec.IsSidecar(c)
}

// Units returns what containers that have ended when the container starts were given, and none that runs beside it,
// sorted. given has what a container was given.
func Units[T cmp.Ordered](spec *v1.PodSpec, container string, given func(name string) []T) []T {
	all := map[T]struct{}{}
	for kind, c := range podspec.Containers(spec) {
		if c.Name == container {
			break
		}
		for _, unit := range given(c.Name) {
			if ends(kind, c) {
				all[unit] = struct{}{}
			} else {
				delete(all, unit)
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}
