package crimeta

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
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
func RefFromLabels(labels map[string]string) (ref runtime.PodRef, ok bool) {
	ref = runtime.PodRef{
		UID:       types.UID(labels[LabelPodUID]),
		Namespace: labels[LabelPodNamespace],
		Name:      labels[LabelPodName],
	}
	return ref, ref.UID != "" && ref.Namespace != "" && ref.Name != ""
}
