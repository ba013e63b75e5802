package streams

import (
	"errors"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// notFound is an error that is answered with status 404.
type notFound struct{ error }

// answer answers with an error as kubelet does: 404 if there is no such container, and
// otherwise 500.
func answer(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if missing := (notFound{}); errors.As(err, &missing) || errors.Is(err, runtime.ErrNotFound) {
		code = http.StatusNotFound
	}
	http.Error(w, err.Error(), code)
}

// runningContainer returns the running instance of the container.
func runningContainer(pod *v1.Pod, status *runtime.PodStatus, name string) (*runtime.ContainerStatus, error) {
	if !inSpec(&pod.Spec, name) {
		return nil, notFound{fmt.Errorf("container not found (%q)", name)}
	}
	c := status.Newest(name)
	switch {
	case c == nil:
		return nil, fmt.Errorf("container not found (%q): it was not started yet", name)
	case c.State == runtime.ContainerRunning:
		return c, nil
	case c.State == runtime.ContainerExited:
		return nil, fmt.Errorf("container not found (%q): it has ended with exit code %d", name, c.ExitCode)
	default:
		return nil, fmt.Errorf("container not found (%q): it is %s", name, c.State)
	}
}

// visit calls f with each container of the pod until f returns true, and reports that.
func visit(spec *v1.PodSpec, f func(name string, tty bool) bool) bool {
	for i := range spec.InitContainers {
		if f(spec.InitContainers[i].Name, spec.InitContainers[i].TTY) {
			return true
		}
	}
	for i := range spec.Containers {
		if f(spec.Containers[i].Name, spec.Containers[i].TTY) {
			return true
		}
	}
	for i := range spec.EphemeralContainers {
		if f(spec.EphemeralContainers[i].Name, spec.EphemeralContainers[i].TTY) {
			return true
		}
	}
	return false
}

func inSpec(spec *v1.PodSpec, container string) bool {
	return visit(spec, func(name string, _ bool) bool { return name == container })
}

func hasTTY(spec *v1.PodSpec, container string) bool {
	return visit(spec, func(name string, tty bool) bool { return name == container && tty })
}
