package podresources

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Pod is a pod that holds resources.
type Pod struct {
	Namespace, Name string
	// Resources are the CPUs and the memory that the pod has as a whole. Its containers use them together, except those
	// with resources of their own.
	Resources
	// Containers are those that run as long as the pod: sidecars and main containers.
	Containers []Container
}

// Container is a container of such a pod.
type Container struct {
	Name string
	Resources
}

// List returns the pods that hold resources, as the API does, for the program itself. No limit applies.
func (s *Server) List() (all []Pod) {
	for _, pod := range s.pods() {
		all = append(all, s.describe(pod))
	}
	return all
}

func (s *Server) describe(pod *v1.Pod) Pod {
	out := Pod{Namespace: pod.Namespace, Name: pod.Name, Resources: s.ofPod(pod)}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind == podspec.MainContainer || kind == podspec.InitContainer && podspec.IsSidecar(c) {
			out.Containers = append(out.Containers, Container{c.Name, s.of(pod, c)})
		}
	}
	return out
}
