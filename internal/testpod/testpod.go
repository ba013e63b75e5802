// Package testpod builds pods for tests.
//
//	pod := testpod.New("web", testpod.Static, testpod.Containers("main"), testpod.Grace(5))
//
// An option is a function that changes the pod, so that a test can write its own in
// place.
package testpod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Image is the image of containers that are given by name only.
const Image = "image:1"

// Option changes a pod that is being built.
type Option = func(*v1.Pod)

// New returns a pod of the name in namespace "default" with the UID "uid-<name>",
// changed by the options in their order. It has no containers and no defaults.
func New(name string, options ...Option) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	for _, option := range options {
		option(pod)
	}
	return pod
}

// With returns a copy of the pod, changed by the options in their order.
func With(pod *v1.Pod, options ...Option) *v1.Pod {
	pod = pod.DeepCopy()
	for _, option := range options {
		option(pod)
	}
	return pod
}

// Namespace sets the namespace.
func Namespace(namespace string) Option {
	return func(pod *v1.Pod) { pod.Namespace = namespace }
}

// UID sets the UID.
func UID(uid types.UID) Option {
	return func(pod *v1.Pod) { pod.UID = uid }
}

// Annotation sets an annotation.
func Annotation(key, value string) Option {
	return func(pod *v1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) }
}

// Source sets the source that the pod came from, as a mux of sources does it.
func Source(name string) Option { return Annotation("kubernetes.io/config.source", name) }

// Static makes the pod a static pod from source "file".
func Static(pod *v1.Pod) { Source("file")(pod) }

// Containers adds containers of the names and image [Image].
func Containers(names ...string) Option {
	return func(pod *v1.Pod) {
		for _, name := range names {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name, Image: Image})
		}
	}
}

// Container adds containers.
func Container(containers ...v1.Container) Option {
	return func(pod *v1.Pod) { pod.Spec.Containers = append(pod.Spec.Containers, containers...) }
}

// Init adds init containers.
func Init(containers ...v1.Container) Option {
	return func(pod *v1.Pod) { pod.Spec.InitContainers = append(pod.Spec.InitContainers, containers...) }
}

// Sidecar adds an init container that keeps running.
func Sidecar(container v1.Container) Option {
	always := v1.ContainerRestartPolicyAlways
	container.RestartPolicy = &always
	return Init(container)
}

// Volumes adds volumes. The first container, or else the first init container, mounts those
// that no container mounts yet, at "/<name>".
func Volumes(volumes ...v1.Volume) Option {
	return func(pod *v1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, volumes...)
		all := append(slices.Clone(pod.Spec.Containers), pod.Spec.InitContainers...)
		for i := range volumes {
			mounted := slices.ContainsFunc(all, func(c v1.Container) bool {
				return slices.ContainsFunc(c.VolumeMounts,
					func(m v1.VolumeMount) bool { return m.Name == volumes[i].Name })
			})
			mount := v1.VolumeMount{Name: volumes[i].Name, MountPath: "/" + volumes[i].Name}
			switch {
			case mounted:
			case len(pod.Spec.Containers) > 0:
				pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, mount)
			case len(pod.Spec.InitContainers) > 0:
				pod.Spec.InitContainers[0].VolumeMounts = append(pod.Spec.InitContainers[0].VolumeMounts, mount)
			}
		}
	}
}

// UnusedVolumes adds volumes that no container mounts.
func UnusedVolumes(volumes ...v1.Volume) Option {
	return func(pod *v1.Pod) { pod.Spec.Volumes = append(pod.Spec.Volumes, volumes...) }
}

// Restart sets the restart policy.
func Restart(policy v1.RestartPolicy) Option {
	return func(pod *v1.Pod) { pod.Spec.RestartPolicy = policy }
}

// Grace sets the grace period of the spec in seconds.
func Grace(seconds int64) Option {
	return func(pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = &seconds }
}

// Deleted marks the pod as deleted in the API, with a grace period in seconds.
func Deleted(grace int64) Option {
	return func(pod *v1.Pod) {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1, 0)}, &grace
	}
}

// Phase sets the phase of the status.
func Phase(phase v1.PodPhase) Option {
	return func(pod *v1.Pod) { pod.Status.Phase = phase }
}
