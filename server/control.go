package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/server/internal/lookup"
)

// ExitCodeHeader is the header of an answer of /run that has the exit code of the
// command.
const ExitCodeHeader = "X-Exit-Code"

// Control returns a handler of /healthz, of /pods, of /stats/summary, of /containerLogs and of
// /run, with Options.Streams also of /exec, /attach and /portForward. A client that reaches it
// can run commands in all containers. Serve it where only the agent's own user can reach it, such
// as on a socket of [ListenUnix].
func Control(agent Agent, opts Options) http.Handler {
	opts.Logger = logging.OrDefault(opts.Logger)
	mux := &routes{}
	addHealthz(mux, agent, opts)
	addPods(mux, agent, opts)
	addStats(mux, opts)
	addContainers(mux, agent, opts)
	return mux
}

// addContainers adds the handlers of containers.
func addContainers(mux *routes, agent Agent, opts Options) {
	c := &control{agent: agent, log: opts.Logger}
	logs := ContainerLogs(agent, opts)
	for _, pod := range []string{"{namespace}/{pod}", "{namespace}/{pod}/{uid}"} {
		mux.handle("GET /containerLogs/"+pod+"/{container}", logs)
		mux.handle("POST /run/"+pod+"/{container}", http.HandlerFunc(c.run))
	}
	if opts.Streams != nil {
		for _, path := range []string{"/exec/", "/attach/", "/portForward/"} {
			mux.handle(path, sessions(opts.Streams, opts.Requests))
		}
	}
}

type control struct {
	agent Agent
	log   logr.Logger
}

// find returns the pod and the name of the container in the path of the request. If one of them
// does not exist, find answers the request with status 404 and a text, and returns false. The texts
// are kubelet's, which has others for each path.
func find(agent Agent, w http.ResponseWriter, req *http.Request,
	noPod, noContainer string) (pod *v1.Pod, container string, ok bool) {
	pod, found := lookup.Request(agent, req)
	switch {
	case pod == nil:
		writeError(w, http.StatusNotFound, noPod)
		return nil, "", false
	case found == nil:
		writeError(w, http.StatusNotFound, noContainer)
		return nil, "", false
	}
	return pod, found.Name, true
}

// writeError answers with an error as kubelet does: the text and nothing else. The API server
// and kubectl show it.
func writeError(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff") // names of containers come from the path
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

// statusOf returns the API status of a container, or nil.
func statusOf(s *v1.PodStatus, container string) *v1.ContainerStatus {
	for of := range podspec.Statuses(s) {
		if of.Name == container {
			return of
		}
	}
	return nil
}

// run runs a command and, when it has ended, answers with its output.
func (c *control) run(w http.ResponseWriter, req *http.Request) {
	pod, container, ok := find(c.agent, w, req, "pod does not exist", fmt.Sprintf("container not found (%q)",
		req.PathValue("container")))
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
	seen, _ := c.agent.RuntimeStatus(pod.UID)
	instance := seen.Newest(container)
	if instance == nil || instance.State != runtime.ContainerRunning {
		http.Error(w, fmt.Sprintf("container %q in pod %q does not run: %s", container, pod.Name,
			stateOf(pod, container)), http.StatusBadRequest)
		return
	}
	// The context ends when the client disconnects, and so does the command.
	result, err := c.agent.Exec(req.Context(), instance.ID, cmd, 0)
	if err != nil {
		if context.Cause(req.Context()) == nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(ExitCodeHeader, strconv.Itoa(int(result.ExitCode)))
	if _, err := w.Write(result.Output); err != nil {
		c.log.V(1).Info("The client of /run disconnected", "reason", err.Error())
	}
}

// stateOf describes the state of a container in a few words.
func stateOf(pod *v1.Pod, container string) string {
	s := statusOf(&pod.Status, container)
	switch {
	case s == nil && pod.Status.Phase == v1.PodFailed:
		return fmt.Sprintf("the pod has failed: %s: %s", pod.Status.Reason, pod.Status.Message)
	case s == nil && pod.Status.Message != "":
		return pod.Status.Reason + ": " + pod.Status.Message
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
