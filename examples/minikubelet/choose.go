package main

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// choosePod finds the pod that a name means: that of the pod, or that of its manifest,
// to which the node's was added.
func choosePod(pods []*v1.Pod, namespace, name string) (*v1.Pod, error) {
	var exact, short []*v1.Pod
	all := make([]string, 0, len(pods))
	for _, pod := range pods {
		all = append(all, pod.Namespace+"/"+pod.Name)
		switch {
		case pod.Namespace != namespace:
		case pod.Name == name:
			exact = append(exact, pod)
		case pod.Spec.NodeName != "" && pod.Name == name+"-"+strings.ToLower(pod.Spec.NodeName):
			short = append(short, pod)
		}
	}
	found := exact
	if len(found) == 0 {
		found = short
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var which []string
		for _, pod := range found {
			which = append(which, fmt.Sprintf("%s/%s with UID %s", pod.Namespace, pod.Name, pod.UID))
		}
		slices.Sort(which)
		return nil, fmt.Errorf("%q in namespace %q means more than one pod: %s", name, namespace, strings.Join(which, ", "))
	case len(all) == 0:
		return nil, fmt.Errorf("there is no pod %q in namespace %q: the agent has no pods", name, namespace)
	default:
		slices.Sort(all)
		return nil, fmt.Errorf("there is no pod %q in namespace %q; there are %s", name, namespace, strings.Join(all, ", "))
	}
}

// defaultContainerAnnotation names the container that a command is about when
// none is given (kubectl).
const defaultContainerAnnotation = "kubectl.kubernetes.io/default-container"

// chooseContainer finds the container that is meant; note says which, where others
// might have been.
func chooseContainer(pod *v1.Pod, name string) (container, note string, err error) {
	var names []string
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	regular := len(names)
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	annotated := pod.Annotations[defaultContainerAnnotation]
	switch {
	case name != "" && slices.Contains(names, name):
		return name, "", nil
	case name != "":
		return "", "", fmt.Errorf("pod %s/%s has no container %q; it has %s", pod.Namespace, pod.Name, name, strings.Join(names, ", "))
	case regular == 0:
		return "", "", fmt.Errorf("pod %s/%s has no containers", pod.Namespace, pod.Name)
	case annotated != "" && slices.Contains(names, annotated):
		return annotated, "", nil
	case len(names) > 1:
		note = fmt.Sprintf("Container %q is taken out of %s; name another with -c.", names[0], strings.Join(names, ", "))
	}
	return names[0], note, nil
}
