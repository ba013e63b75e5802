package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ExitCodeHeader of an answer of /run has the exit code of the command.
const ExitCodeHeader = "X-Exit-Code"

// Containers is what [Control] needs for logs and commands; *kubeletkit.Agent is one.
type Containers interface {
	// RuntimeStatus returns what was last seen of the pod in the runtime.
	RuntimeStatus(pod types.UID) (*runtime.PodStatus, bool)
	runtime.Execer
}

// Control returns the read-only API, and in addition /containerLogs and /run. Who
// can reach it can run commands in all containers: serve it where only the
// agent's own user can, as on a socket of [ListenUnix].
func Control(agent Agent, containers Containers, opts Options) http.Handler {
	c := &control{agent: agent, containers: containers, log: opts.Logger}
	if c.log.IsZero() {
		c.log = logr.Discard()
	}
	mux := http.NewServeMux()
	readOnly := Handler(agent, opts)
	mux.Handle("/healthz", readOnly)
	mux.Handle("/pods", readOnly)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", c.containerLogs)
	mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", c.run)
	return mux
}

type control struct {
	agent      Agent
	containers Containers
	log        logr.Logger
}

// target finds what the path names. If it is not there, it answers.
func (c *control) target(w http.ResponseWriter, req *http.Request) (pod *v1.Pod, container string, ok bool) {
	namespace, name, container := req.PathValue("namespace"), req.PathValue("pod"), req.PathValue("container")
	for _, p := range c.agent.Pods() {
		if p.Namespace == namespace && p.Name == name {
			pod = p
		}
	}
	if pod == nil {
		http.Error(w, fmt.Sprintf("pod %q does not exist", namespace+"/"+name), http.StatusNotFound)
		return nil, "", false
	}
	if !slices.Contains(containerNames(&pod.Spec), container) {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q; it has %s", container, name, strings.Join(containerNames(&pod.Spec), ", ")), http.StatusNotFound)
		return nil, "", false
	}
	return pod, container, true
}

func containerNames(spec *v1.PodSpec) []string {
	var names []string
	for i := range spec.InitContainers {
		names = append(names, spec.InitContainers[i].Name)
	}
	for i := range spec.Containers {
		names = append(names, spec.Containers[i].Name)
	}
	for i := range spec.EphemeralContainers {
		names = append(names, spec.EphemeralContainers[i].Name)
	}
	return names
}

// statusOf returns the API status of a container, or nil.
func statusOf(s *v1.PodStatus, container string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}

// run runs a command and answers when it has ended, with its output.
func (c *control) run(w http.ResponseWriter, req *http.Request) {
	pod, container, ok := c.target(w, req)
	if !ok {
		return
	}
	query := req.URL.Query()
	cmd := query["command"]
	if text := query.Get("cmd"); text != "" && len(cmd) == 0 {
		cmd = strings.Split(text, " ") // as kubelet
	}
	if len(cmd) == 0 {
		http.Error(w, "no command is given: want cmd, or command once for each of its arguments", http.StatusBadRequest)
		return
	}
	seen, _ := c.containers.RuntimeStatus(pod.UID)
	instance := seen.Newest(container)
	if instance == nil || instance.State != runtime.ContainerRunning {
		http.Error(w, fmt.Sprintf("container %q in pod %q does not run: %s", container, pod.Name, stateOf(pod, container)), http.StatusBadRequest)
		return
	}
	// The command ends with the request; that of a client that goes away does.
	result, err := c.containers.Exec(req.Context(), instance.ID, cmd, time.Duration(0))
	if err != nil {
		if context.Cause(req.Context()) == nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(ExitCodeHeader, strconv.Itoa(int(result.ExitCode)))
	if _, err := w.Write(result.Output); err != nil {
		c.log.V(1).Info("A reader of /run went away", "reason", err.Error())
	}
}

// stateOf says in a few words how a container is.
func stateOf(pod *v1.Pod, container string) string {
	s := statusOf(&pod.Status, container)
	switch {
	case s == nil && pod.Status.Phase == v1.PodFailed:
		return fmt.Sprintf("the pod has failed: %s: %s", pod.Status.Reason, pod.Status.Message)
	case s == nil:
		return "it was not started yet"
	case s.State.Terminated != nil:
		return fmt.Sprintf("it has ended with exit code %d", s.State.Terminated.ExitCode)
	case s.State.Waiting != nil && s.State.Waiting.Message != "":
		return s.State.Waiting.Reason + ": " + s.State.Waiting.Message
	case s.State.Waiting != nil:
		return s.State.Waiting.Reason
	default:
		return "it was not seen in the runtime yet"
	}
}
