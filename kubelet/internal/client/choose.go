package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// errNoPod means that no pod has the name.
var errNoPod = errors.New("there is no pod")

// match is how well a pod matches a name; more is better.
type match int

const (
	notNamed match = iota
	// shortName: the name is that of the manifest, without the name of the node.
	shortName
	fullName
	uid
)

// names reports how the name matches the pod.
func names(pod *v1.Pod, namespace, name string) match {
	switch {
	case name == string(pod.UID) && name != "":
		return uid
	case pod.Namespace != namespace:
		return notNamed
	case pod.Name == name:
		return fullName
	case pod.Spec.NodeName != "" && pod.Name == name+"-"+strings.ToLower(pod.Spec.NodeName):
		return shortName
	default:
		return notNamed
	}
}

// choosePod finds the pod that a name means. A pod wins over its predecessor, which is
// terminating. The error wraps errNoPod if there is none.
func choosePod(pods []*v1.Pod, namespace, name string) (*v1.Pod, error) {
	var found []*v1.Pod
	var elsewhere []string
	all := make([]string, 0, len(pods))
	best := shortName
	for _, pod := range pods {
		all = append(all, pod.Namespace+"/"+pod.Name)
		if names(pod, pod.Namespace, name) != notNamed {
			elsewhere = append(elsewhere, pod.Namespace+"/"+pod.Name)
		}
		m := names(pod, namespace, name)
		if m > best {
			best, found = m, nil
		}
		if m == best {
			found = append(found, pod)
		}
	}
	if successors := slices.DeleteFunc(slices.Clone(found),
		func(p *v1.Pod) bool { return p.DeletionTimestamp != nil }); len(successors) > 0 {
		found = successors
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
		return nil, fmt.Errorf("%q in namespace %q means more than one pod: %s", name, namespace,
			strings.Join(which, ", "))
	case len(all) == 0:
		return nil, fmt.Errorf("%w %q in namespace %q: the agent has no pods", errNoPod, name, namespace)
	case len(elsewhere) == 1:
		return nil, fmt.Errorf("%w %q in namespace %q; use -n %s", errNoPod, name, namespace,
			strings.SplitN(elsewhere[0], "/", 2)[0])
	case len(elsewhere) > 0:
		return nil, fmt.Errorf("%w %q in namespace %q; did you mean %s?", errNoPod, name, namespace, Some(elsewhere))
	default:
		return nil, fmt.Errorf("%w %q in namespace %q; there are %s", errNoPod, name, namespace, Some(all))
	}
}

// defaultContainerAnnotation is kubectl's annotation for the container that a command
// uses if none is given.
const defaultContainerAnnotation = "kubectl.kubernetes.io/default-container"

// chooseContainer finds the container that a command uses. The note names it if others
// were possible.
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
		return "", "", fmt.Errorf("pod %s/%s has no container %q; it has %s", pod.Namespace, pod.Name, name,
			strings.Join(names, ", "))
	case regular == 0:
		return "", "", fmt.Errorf("pod %s/%s has no containers", pod.Namespace, pod.Name)
	case annotated != "" && slices.Contains(names, annotated):
		return annotated, "", nil
	case len(names) > 1:
		note = fmt.Sprintf("Container %s is used; -c names another: %s.", names[0], strings.Join(names[1:], ", "))
	}
	return names[0], note, nil
}
