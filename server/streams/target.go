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

// target is what the path of a request names.
type target struct {
	pod       *v1.Pod
	container *v1.Container      // nil if the pod has none of the name
	status    *runtime.PodStatus // nil if none is known
}

// running returns the running instance of the container, whose name in the path is name.
func (t *target) running(name string) (*runtime.ContainerStatus, error) {
	if t.container == nil {
		return nil, notFound{fmt.Errorf("container not found (%q)", name)}
	}
	c := t.status.Newest(name)
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
