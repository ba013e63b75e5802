package crimeta

import (
	"cmp"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Labels that identify the pod and the container.
const (
	LabelPodName       = kubelettypes.KubernetesPodNameLabel
	LabelPodNamespace  = kubelettypes.KubernetesPodNamespaceLabel
	LabelPodUID        = kubelettypes.KubernetesPodUIDLabel
	LabelContainerName = kubelettypes.KubernetesContainerNameLabel
)

// SandboxLabels returns the labels of a pod's sandbox: the pod's own, and the three
// that identify it.
func SandboxLabels(pod *v1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	maps.Copy(labels, pod.Labels)
	labels[LabelPodName] = pod.Name
	labels[LabelPodNamespace] = pod.Namespace
	labels[LabelPodUID] = string(pod.UID)
	return labels
}

// ContainerLabels returns the labels that identify a container. Those of the pod
// are not repeated.
func ContainerLabels(pod *v1.Pod, c *v1.Container) map[string]string {
	return map[string]string{
		LabelPodName:       pod.Name,
		LabelPodNamespace:  pod.Namespace,
		LabelPodUID:        string(pod.UID),
		LabelContainerName: c.Name,
	}
}

// RefFromLabels returns the pod that a sandbox or a container belongs to. ok is
// false if the name, the namespace or the UID is missing: then no agent that
// follows kubelet's conventions has created it.
//
// The labels are from the runtime, and become parts of paths. If one of them is no file name,
// the result is zero.
func RefFromLabels(labels map[string]string) (ref runtime.PodRef, ok bool) {
	ref = runtime.PodRef{
		UID:       types.UID(labels[LabelPodUID]),
		Namespace: labels[LabelPodNamespace],
		Name:      labels[LabelPodName],
	}
	if !fileNameOrEmpty(string(ref.UID)) || !fileNameOrEmpty(ref.Namespace) || !fileNameOrEmpty(ref.Name) {
		return runtime.PodRef{}, false
	}
	return ref, ref.UID != "" && ref.Namespace != "" && ref.Name != ""
}

// ContainerName returns the name of a container: that of the label, or else of its metadata.
// It is "" if that is no file name, for the same reason as in [RefFromLabels].
func ContainerName(labels map[string]string, metadata string) string {
	name := cmp.Or(labels[LabelContainerName], metadata)
	if !fileNameOrEmpty(name) {
		return ""
	}
	return name
}

func fileNameOrEmpty(s string) bool { return s == "" || podspec.IsFileName(types.UID(s)) }
